"""Opens clients of the library for commands: the one place where a command meets a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlog import Admin, Consumer, Producer


def open_admin(bootstrap: str) -> Admin:
    """A client that asks for topics and changes them; close it."""
    import ringlog
    from cli.reachable import require_listener

    require_listener(bootstrap)
    return ringlog.Admin(bootstrap=bootstrap)


def open_producer(bootstrap: str, **settings: Any) -> Producer:
    """A client that sends; closing it waits for what is on its way."""
    import ringlog
    from cli.reachable import require_listener

    require_listener(bootstrap)
    return ringlog.Producer(bootstrap=bootstrap, **settings)


def open_consumer(bootstrap: str, **settings: Any) -> Consumer:
    """A client that reads partitions that are assigned to it; close it."""
    import ringlog
    from cli.reachable import require_listener

    require_listener(bootstrap)
    return ringlog.Consumer(bootstrap=bootstrap, **settings)
