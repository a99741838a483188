"""A trial: a node under load that something is done to, and then the three judges."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.checkers.disk import METADATA_PARTITION, check_disk
from tests.support.checkers.history import check_recordings
from tests.support.checkers.violations import report
from tests.support.load import Load, audit
from tests.support.node import NodeProcess
from tests.support.patience import stretched
from tests.support.raw_client import RawClient

TOPIC = "orders"


class Trial:
    """One node in a directory of its own, with one topic."""

    def __init__(
        self, directory: Path, *, partitions: int = 4, data_dir: Path | None = None, **node: Any
    ) -> None:
        self.partitions = partitions
        self.recordings = str(directory / "recordings")
        os.makedirs(self.recordings)
        log_path = str(directory / "node.log")
        self.node = NodeProcess(str(data_dir or directory / "data"), log_path=log_path, **node)

    def __enter__(self) -> Trial:
        self.node.__enter__()
        try:
            with self.client() as client:
                client.create_topic(TOPIC, self.partitions)
        except BaseException:
            self.node.destroy()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.node.__exit__(kind, error, trace)

    def client(self, timeout_s: float | None = None) -> RawClient:
        """A plain client of the node. It waits for answers as long as a node of a machine that is so busy may take."""
        return RawClient(self.node.endpoint, stretched(5.0) if timeout_s is None else timeout_s)

    def load(self, **settings: Any) -> Load:
        """Load on the topic; use it in a `with`."""
        return Load(self.node.bootstrap, self.recordings, TOPIC, partitions=self.partitions, **settings)

    def judge(self, records_min: int = 1) -> None:
        """After the load has ended: read everything, stop the node, and let C1, C2 and C3 say what they found."""
        read = audit(self.node.endpoint, self.recordings, TOPIC)
        assert read >= records_min, f"{read} records in the log: too few to judge by"
        code = self.node.stop()
        assert code == 0, f"a stop is clean, but the node ended with {code}\n{self.node.log_tail()}"
        found = check_recordings(self.recordings)
        found += check_disk(self.node.data_dir, expected=[METADATA_PARTITION])
        found += self.node.watch.leaks(within_s=1)
        assert not found, report(found)
