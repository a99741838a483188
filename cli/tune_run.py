"""What `ringlog tune` does: probe, advise, compare, apply, and print each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import msgspec

from cli.output import print_json
from cli.screen import progress_bar
from cli.tune_text import print_advice, print_applied, print_compared, print_system, print_undone
from ringlog.config import load_config
from ringlog.errors import InvalidRequest
from tuning.advice.advise import advise
from tuning.advice.setting import Advice, Policy, SystemChange
from tuning.apply.put import Applied, put
from tuning.apply.undo import take_back, write_whole
from tuning.probe.measured import Facts
from tuning.report.tune_page import tune_page

if TYPE_CHECKING:
    from tuning.compare import Compared

FACTS_NAME = "tune-facts.json"


@dataclass(frozen=True, slots=True)
class Asked:
    """The options."""

    data_dir: str
    policy: str
    budget_s: float
    facts_path: str | None
    apply: bool
    system: bool
    yes: bool
    compare_s: float | None
    report_path: str | None


def run_tune(asked: Asked, *, as_json: bool) -> None:
    """Measure or load, advise, compare if asked, then apply if asked."""
    if asked.report_path and not os.path.isdir(os.path.dirname(asked.report_path) or "."):
        # Before a minute of measuring, and not after it.
        raise InvalidRequest(f"--report {asked.report_path}: there is no such directory")
    facts = load_facts(asked.facts_path) if asked.facts_path else _probe(asked)
    advice = advise(facts, Policy(asked.policy))
    if not as_json:
        print_advice(facts, advice)
    compared = _compare(asked, advice) if asked.compare_s is not None else []
    if compared and not as_json:
        print_compared(compared)
    if asked.report_path:
        write_whole(asked.report_path, tune_page(facts, advice, compared))
    applied = _apply(asked, facts, advice, as_json=as_json) if asked.apply else None
    if as_json:
        print_json({"facts": facts, "advice": advice, "compared": compared, "applied": applied})
    elif applied is not None:
        print_applied(applied)
    else:
        print("Nothing was changed. --apply writes these settings for the next start of a node.")
    if asked.report_path and not as_json:
        print(f"The report is in {asked.report_path}.")


def run_undo(data_dir: str, *, force: bool, as_json: bool) -> None:
    """`--undo`."""
    undone = take_back(data_dir, force=force)
    if as_json:
        print_json(undone)
    else:
        print_undone(undone)


def load_facts(path: str) -> Facts:
    """Facts that an earlier run saved."""
    with open(path, "rb") as file:
        try:
            return msgspec.json.decode(file.read(), type=Facts)
        except msgspec.MsgspecError as wrong:
            raise InvalidRequest(
                f"{path}: not facts of a probe: {wrong}. Probe anew, without --facts"
            ) from None


def _probe(asked: Asked) -> Facts:
    from tuning.probe.run import probe

    with progress_bar(1.0) as update:
        facts = probe(asked.data_dir, budget_s=asked.budget_s, on_progress=update)
    text = msgspec.json.format(msgspec.json.encode(facts)).decode()
    write_whole(os.path.join(asked.data_dir, FACTS_NAME), text)
    return facts


def _compare(asked: Asked, advice: Advice) -> list[Compared]:
    from tuning.compare import compare, tunable

    assert asked.compare_s is not None
    before = tunable(load_config(data_dir=asked.data_dir))
    with progress_bar(1.0) as update:
        return compare(
            asked.data_dir,
            before,
            advice.over(before),
            seconds=asked.compare_s,
            on_progress=update,
        )


def _apply(asked: Asked, facts: Facts, advice: Advice, *, as_json: bool) -> Applied:
    wanted: Sequence[SystemChange] = advice.system if asked.system else ()
    if wanted and not as_json:
        print_system(wanted)
    if wanted and not asked.yes:
        if as_json or not sys.stdin.isatty():
            raise InvalidRequest(
                "values of the kernel are changed only with consent; use --yes, or a terminal"
            )
        if not click.confirm("Change these now?"):
            wanted = ()
    heading = f"policy {advice.policy}, from a probe of {facts.probed_at}"
    return put(advice, asked.data_dir, heading=heading, system=wanted)
