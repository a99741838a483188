"""What every system's client can do for a worker."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perf.compare.model import Durability
from perf.compare.payload import Payload

STAMP_BYTES = 8
"""At the start of a record that is timed: the moment at which it was due, in nanoseconds."""
Look = Callable[[Sequence[Any]], None]
"""Is given values as they arrive: bytes, or views of them."""


class Place(NamedTuple):
    """Where a worker produces or consumes."""

    address: str
    topic: str
    partitions: int
    durability: Durability
    paced: bool = False
    """Records are sent when they are due: a client that waits for more to come is told not to."""


class Timed(NamedTuple):
    """Records and the seconds that they took, by the client's own clock."""

    records: int
    seconds: float


class ProducerClient(abc.ABC):
    """Sends records. Made and connected before the clock starts."""

    @abc.abstractmethod
    def produce(self, payload: Payload, records: int) -> Timed:
        """Send records from the pool, as fast as it goes; return when all are acknowledged."""

    def close(self) -> None:  # noqa: B027 - a tool that ends by itself has none to end
        """End the connection."""


class Sender(abc.ABC):
    """Sends records when they are due."""

    @abc.abstractmethod
    def send(self, values: npt.NDArray[np.uint8]) -> None:
        """Send some records at once, without waiting for acknowledgements."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Wait for what `send` has on its way."""


class PacedProducer(ProducerClient, Sender):
    """As fast as it goes, or at given times: latency is measured with it."""


class ConsumerClient(abc.ABC):
    """Reads a topic from its beginning."""

    @abc.abstractmethod
    def consume(self, records: int) -> Timed:
        """Read this many records, the payload in full."""

    def close(self) -> None:  # noqa: B027 - a tool that ends by itself has none to end
        """End the connection."""


class Receiver(abc.ABC):
    """Takes records as they come."""

    @abc.abstractmethod
    def receive_stamps(self, timeout_s: float) -> npt.NDArray[np.int64]:
        """The stamps of the values that have come, waiting for the first at most so long."""


class Reader(ConsumerClient, Receiver):
    """Shows what it reads: deliveries are checked with it, and latency is measured."""

    @abc.abstractmethod
    def read(self, records: int, look: Look | None) -> Timed:
        """Read this many records; show them to `look` when there is one."""

    def consume(self, records: int) -> Timed:
        return self.read(records, None)


def stamps_of(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """The stamps at the start of values.

    >>> stamps_of([(5).to_bytes(8, "little") + b"rest", (7).to_bytes(8, "little")]).tolist()
    [5, 7]
    """
    return np.frombuffer(b"".join(value[:STAMP_BYTES] for value in values), dtype=np.int64)
