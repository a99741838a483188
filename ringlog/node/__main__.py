"""`python -m ringlog.node`: a node without the CLI, for those who start it from a program."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys

from ringlog.config import load_config
from ringlog.errors import RinglogError
from ringlog.node.children import stop_with_parent
from ringlog.node.identity import NodeInfo
from ringlog.node.supervisor import run


def main() -> int:
    """Parse, run, and say in one line what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m ringlog.node", description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--listen")
    parser.add_argument("--shards", type=int)
    parser.add_argument("--config")
    parser.add_argument("--no-pin", dest="pin", action="store_false", default=None)
    parser.add_argument("--insecure", action="store_true", default=None)
    parser.add_argument("--metrics-listen")
    parser.add_argument("--tail-bytes-per-shard", type=int)
    parser.add_argument("--node-id", type=int)
    parser.add_argument("--cluster")
    parser.add_argument("--rack")
    parser.add_argument("--advertise")
    parser.add_argument("--die-with", type=int, help="pid of the process to die with")
    parser.add_argument(
        "--throw-away", action="store_true", help="delete the data directory when that process has died"
    )
    arguments = vars(parser.parse_args())
    die_with, throw_away = arguments.pop("die_with"), arguments.pop("throw_away")
    if die_with is not None and not stop_with_parent(die_with):
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s supervisor %(levelname)s %(message)s")
    try:
        config = load_config(arguments.pop("config"), **arguments)
        code = run(config, _say_ready)
    except (RinglogError, OSError) as error:
        print(f"ringlog: {error}", file=sys.stderr)
        return 3
    if throw_away and os.getppid() != die_with:
        # A process that lives does it itself, when it has read what the log says.
        shutil.rmtree(config.data_dir, ignore_errors=True)
    return code


def _say_ready(info: NodeInfo) -> None:
    print(f"ready: {info.endpoints[0]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
