"""Asks a person before something is deleted that nobody can bring back."""

from __future__ import annotations

import sys

import click

from ringlog.errors import InvalidRequest


def require_consent(question: str, *, yes: bool) -> None:
    """Return when a person agrees, or nobody is there who could be asked; InvalidRequest when somebody says no.

    Scripts have no terminal. Where stderr is none, nobody would see the question.
    """
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not click.confirm(question, err=True):
        raise InvalidRequest("nothing was deleted; --yes does not ask")
