"""What `ringlog bridge` does, and how `ringlog start --bridge` starts one beside the node and keeps it alive."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading

from cli.node_run import LOG_FORMAT
from cli.output import print_json

_AGAIN_S = 1.0


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


def keep_bridge(bootstrap: str, *, insecure: bool, die_with: int) -> subprocess.Popen[bytes]:
    """Start a bridge beside a node, and another one whenever it dies, as long as the process `die_with` lives.

    A process of its own does it: the supervisor of a node has no threads, and minds its own children only.
    """
    command = [sys.executable, "-m", "cli.bridge_run", bootstrap, str(die_with), str(int(insecure))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def _keep(bootstrap: str, die_with: int, insecure: bool) -> int:
    """The keeper's work: a bridge, again and again, until told to stop or the node is gone."""
    from ringlog.node.children import stop_with_parent

    signal.pthread_sigmask(
        signal.SIG_SETMASK, ()
    )  # a supervisor holds its signals back, and its children inherit that
    if not stop_with_parent(die_with):
        return 0
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "bridge",
        "--bootstrap",
        bootstrap,
        "--die-with",
        str(os.getpid()),
    ]
    command += ["--insecure"] if insecure else []
    while not stopped.is_set():
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
            while child.poll() is None and not stopped.wait(0.1):
                continue
            child.terminate()
        stopped.wait(_AGAIN_S)
    return 0


if __name__ == "__main__":
    sys.exit(_keep(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"))
