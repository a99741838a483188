"""What clients warn of, as people see it: a line on stderr, and never the end of the client that gave it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from cli.client_warnings import show_client_warnings


class Full(io.StringIO):
    """Stderr on a full disk, or a pipe that nobody reads."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def logger(monkeypatch) -> Iterator[logging.Logger]:
    """That of clients, in a program without a log of its own."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    show_client_warnings.cache_clear()
    show_client_warnings()
    clients = logging.getLogger("ringlog.client")
    yield clients
    clients.handlers.clear()
    show_client_warnings.cache_clear()


def test_a_warning_is_a_line_of_the_command(logger, capsys):
    logging.getLogger("ringlog.client.outage").warning("no node answers")
    logger.info("the node answers now")
    assert capsys.readouterr().err == "ringlog: no node answers.\n"


@pytest.mark.parametrize("stderr", [None, Full()], ids=["closed", "broken"])
def test_a_warning_that_cannot_be_shown_does_not_end_the_thread_that_gives_it(
    logger, capsys, monkeypatch, stderr
):
    """That is the client's I/O thread: with it all requests would fail."""
    monkeypatch.setattr("sys.stderr", stderr)
    logger.warning("no node answers")
    assert capsys.readouterr().out == "", "it is not taken for what the command prints"
