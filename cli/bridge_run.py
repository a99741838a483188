"""What `ringlog bridge` does, and how `ringlog start --bridge` starts one beside the node."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from cli.node_run import LOG_FORMAT
from cli.output import print_json
from cli.wrong_usage import judging_options


def run_bridge(
    bootstrap: str,
    listen: str | None,
    *,
    cache_mib: int,
    insecure: bool,
    die_with: int | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run a bridge in this process until it is told to stop."""
    from ringlog.config import require_listen
    from ringlog.errors import InvalidRequest
    from ringlog.limits import MIB
    from ringlog.node.children import stop_with_parent

    if die_with is not None and not stop_with_parent(die_with):
        return
    try:
        from spark_bridge.bridge import Bridge
        from spark_bridge.bridge_wire import default_bridge
    except ImportError as missing:
        raise InvalidRequest(
            f"a bridge needs pyarrow ({missing}). Install with: pip install 'ringlog[spark]'"
        ) from None
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format=LOG_FORMAT)
    address = listen or f"tcp://{default_bridge(bootstrap) or ''}"
    with judging_options():
        require_listen(address, insecure=insecure)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    work = Bridge(bootstrap, [address], stopped.is_set, hot_bytes=cache_mib * MIB)
    if as_json:
        print_json({"ready": True, "endpoints": work.endpoints, "bootstrap": bootstrap})
    else:
        print(f"the bridge of {bootstrap} is ready on {work.endpoints[0]}")
    sys.stdout.flush()
    work.run()


def start_bridge(bootstrap: str, *, insecure: bool, die_with: int) -> int:
    """Start a bridge that ends with its parent, the process `die_with`; its pid. The parent may be a supervisor, which
    has no threads and holds its signals back: a child must not inherit that."""
    command = [sys.executable, "-m", "cli.main", "bridge", "--bootstrap", bootstrap]
    command += ["--die-with", str(die_with)] + (["--insecure"] if insecure else [])
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=nowhere, setsigmask=())
