"""Opens clients of the library for commands: the one place where a command meets a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ringlog.errors import RequestTimeout

if TYPE_CHECKING:
    from ringlog import Admin, Consumer, Producer

INTERRUPTED_S = 1.0
"""Who presses Ctrl-C waits no longer for what is on its way."""


def _make_ready(bootstrap: str) -> None:
    from cli.client_warnings import show_client_warnings
    from cli.reachable import require_listener

    show_client_warnings()
    require_listener(bootstrap)


def open_admin(bootstrap: str) -> Admin:
    """A client that asks for topics and changes them; close it."""
    import ringlog

    _make_ready(bootstrap)
    return ringlog.Admin(bootstrap=bootstrap)


@contextmanager
def open_producer(bootstrap: str, **settings: Any) -> Iterator[Producer]:
    """A client that sends; at the end of the block it waits for what is on its way, but not long after Ctrl-C."""
    import ringlog

    _make_ready(bootstrap)
    with ringlog.Producer(bootstrap=bootstrap, **settings) as producer:
        try:
            yield producer
        except KeyboardInterrupt:
            with suppress(RequestTimeout):
                producer.close(INTERRUPTED_S)
            raise


def open_consumer(bootstrap: str, **settings: Any) -> Consumer:
    """A client that reads partitions that are assigned to it; close it."""
    import ringlog

    _make_ready(bootstrap)
    return ringlog.Consumer(bootstrap=bootstrap, **settings)
