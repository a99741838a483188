"""A fetcher and a model broker, and a clock that moves by hand."""

from __future__ import annotations

from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.fetcher import Fetcher
from ringlog.client.lookups import Ask, place_of
from ringlog.errors import (
    RinglogError,
)
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import FetchRequest, decode_body
from tests.support.model_broker import ModelBroker, value_of


def tp(i: int = 0) -> TopicPartition:
    return TopicPartition("t", i)


class Rig:
    """A fetcher and a broker, and a clock that moves by hand."""

    def __init__(self, broker: ModelBroker, **given) -> None:
        self.broker = broker
        self.fetcher = Fetcher(ConsumerSettings(**{"auto_offset_reset": "earliest", **given}))
        self.now = 100.0
        self.parked: list[Ask] = []

    def assign(self, *partitions: int, at: int | None = None) -> None:
        topic = self.broker.metadata()
        self.fetcher.assign({tp(i): (place_of(topic, i), at) for i in partitions})

    def due(self) -> list[Ask]:
        return self.fetcher.due(self.now)[0]

    def fetches(self) -> list[tuple[Ask, FetchRequest]]:
        return [(ask, decode_body(ask.body, FetchRequest)) for ask in self.due() if ask.api == Api.FETCH]

    def deliver(self, ask: Ask) -> None:
        try:
            reply = self.broker.answer(ask.api, ask.body)
        except RinglogError as error:
            ask.failed(error, self.now)
            return
        if reply is None:
            self.parked.append(ask)
        else:
            ask.answered(memoryview(reply), self.now)

    def run(self) -> None:
        """Until nothing more happens by itself."""
        parked, self.parked = self.parked, []
        for ask in parked:
            self.deliver(ask)
        while asks := self.due():
            for ask in asks:
                self.deliver(ask)

    def time_is_over(self) -> None:
        """Fetches that wait at the node are answered, with nothing."""
        parked, self.parked = self.parked, []
        for ask in parked:
            ask.answered(memoryview(self.broker.whole_reply(ask.api, ask.body)), self.now)

    def poll(self, most: int | None = None) -> list[bytes]:
        """The values of what can be polled now; each is checked to be the one that its place promises. As a poll that
        does not wait."""
        values = []
        while (head := self.fetcher.head(self.now, may_raise=not values)) is not None:
            records, behind = head.chunks[0].take(head.position, most)
            for record in records:
                assert record.value == value_of(head.tp.partition, record.offset)
            values += [record.value for record in records]
            self.fetcher.advance(head, behind)
        if not values:
            self.fetcher.raise_standing()
        return values


def settled(broker: ModelBroker, **given) -> Rig:
    rig = Rig(broker, **given)
    rig.assign(*range(len(broker.batches)))
    rig.run()
    return rig
