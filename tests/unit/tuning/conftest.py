"""What the tests of tuning share."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from cli.commands import ringlog
from tests.support.fake_machine import FakeMachine


@pytest.fixture
def run():
    """Run the command in this process; the result has exit_code, stdout and stderr."""
    return lambda *arguments, **how: CliRunner().invoke(ringlog, [str(a) for a in arguments], **how)


@pytest.fixture
def machine(tmp_path) -> FakeMachine:
    """A good server, which a test makes worse."""
    return FakeMachine(tmp_path / "machine")
