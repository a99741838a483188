"""A consumer of a fleet, as a process: prints a line for each record that it gets, then commits.

python -m tests.support.group_child BOOTSTRAP GROUP TOPIC SECONDS
"""

from __future__ import annotations

import signal
import sys
import time

import ringlog


def main(bootstrap: str, group: str, topic: str, seconds: str) -> None:
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    until = time.monotonic() + float(seconds)
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "max_poll_records": 50}
    with ringlog.Consumer(bootstrap=bootstrap, group_id=group, **settings) as consumer:
        consumer.subscribe([topic])
        while not stopping and time.monotonic() < until:
            records = consumer.poll(200)
            for record in records:
                sys.stdout.write(f"{record.partition} {record.offset}\n")
            sys.stdout.flush()
            if records:
                try:
                    consumer.commit()
                except ringlog.errors.MemberFenced:
                    continue  # another reads on from the last commit


if __name__ == "__main__":
    main(*sys.argv[1:])
