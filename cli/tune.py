"""`ringlog tune`: measure this machine, advise settings, apply them, take them back."""

from __future__ import annotations

import click

from cli.finite import FiniteRange
from cli.node_options import chosen_data_dir, data_dir_option
from cli.options import json_option

POLICIES = ("balanced", "latency", "throughput", "laptop")


@click.command()
@data_dir_option
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="balanced",
    show_default=True,
    help="What idle cores are for: asleep soon, awake, all at work, or somebody else's.",
)
@click.option(
    "--budget",
    "budget_s",
    type=FiniteRange(min=1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for measuring.",
)
@click.option(
    "--facts",
    "facts_path",
    type=click.Path(exists=True, dir_okay=False),
    help="Advise from a file of facts that an earlier run saved, and measure nothing.",
)
@click.option(
    "--apply", "apply_", is_flag=True, help="Write the settings into node.toml of the data directory."
)
@click.option(
    "--system", is_flag=True, help="With --apply: change values of the kernel too, after showing and asking."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--undo", is_flag=True, help="Put back what --apply changed, and do nothing else.")
@click.option("--compare", is_flag=True, help="Run the same load on throw-away nodes before and after.")
@click.option(
    "--compare-seconds",
    type=FiniteRange(min=0.1),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="Of each load, in each of three rounds.",
)
@click.option("--report", type=click.Path(dir_okay=False), help="Write a page with plots there (HTML).")
@json_option
def tune(
    data_dir: str | None,
    policy: str,
    budget_s: float,
    facts_path: str | None,
    apply_: bool,
    system: bool,
    yes: bool,
    undo: bool,
    compare: bool,
    compare_seconds: float,
    report: str | None,
    as_json: bool,
) -> None:
    """Measure this machine, and advise the settings of a node on it, each with its reason.

    Nothing is changed without --apply. That writes node.toml in the data directory, which the next start of a node
    reads; with --system it also changes values of the kernel (until the next boot), after showing them and asking. Both
    can be taken back by --undo. What was measured is saved as tune-facts.json in the data directory.

    \b
    Examples:
      ringlog tune --data-dir /data                          measure for 30 s, and advise
      ringlog tune --data-dir /data --apply --compare --report tune.html
      ringlog tune --facts /data/tune-facts.json --policy latency --apply
      ringlog tune --data-dir /data --apply --system         shows what it would change first
      ringlog tune --data-dir /data --undo
    """
    from cli.tune_run import Asked, run_tune, run_undo

    directory = chosen_data_dir(data_dir)
    if system and not apply_:
        raise click.UsageError("--system goes with --apply: without it nothing is changed.")
    if undo:
        if apply_ or compare or facts_path or report:
            raise click.UsageError("--undo goes alone: it only puts back what was.")
        run_undo(directory, force=yes, as_json=as_json)
        return
    run_tune(
        Asked(
            data_dir=directory,
            policy=policy,
            budget_s=budget_s,
            facts_path=facts_path,
            apply=apply_,
            system=system,
            yes=yes,
            compare_s=compare_seconds if compare else None,
            report_path=report,
        ),
        as_json=as_json,
    )
