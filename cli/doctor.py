"""`ringlog doctor`: what this machine lacks, what that costs, and the command that fixes it."""

from __future__ import annotations

import sys

import click

from cli.node_options import chosen_data_dir, data_dir_option
from cli.options import json_option


@click.command()
@data_dir_option
@click.option("--all", "show_all", is_flag=True, help="Show what is wanted and found also where all is well.")
@click.option("--strict", is_flag=True, help="Exit code 1 also for what only costs speed.")
@json_option
def doctor(data_dir: str | None, show_all: bool, strict: bool, as_json: bool) -> None:
    """Check what ringlog needs from this machine, and what costs it speed. Nothing is changed.

    Each line says what was found and what is wanted; where they differ, what that costs and the exact command that
    fixes it. The exit code is 0 when ringlog can work, 5 when something must be fixed first, and with --strict 1 when
    something costs speed.

    \b
    Examples:
      ringlog doctor
      ringlog doctor --data-dir /data --strict && echo "as good as it gets"
      ringlog doctor --json | jq 'select(.level != "ok") | .fix'
    """
    from cli.doctor_text import print_findings
    from cli.failures import ExitCode
    from cli.output import print_json
    from tuning.doctor.diagnose import diagnose
    from tuning.doctor.finding import Level, worst
    from tuning.doctor.read_facts import read_facts

    findings = diagnose(read_facts(chosen_data_dir(data_dir)))
    if as_json:
        for finding in findings:
            print_json(finding)
    else:
        print_findings(findings, show_all=show_all)
    level = worst(findings)
    if level is Level.BROKEN:
        sys.exit(ExitCode.SYSTEM)
    if level is Level.SLOW and strict:
        sys.exit(ExitCode.BROKEN_DATA)
