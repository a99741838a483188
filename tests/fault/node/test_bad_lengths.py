"""Oversize lengths in every length field, against the live socket and through a consumer: typed, at no cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringlog.client.consumer import Consumer
from ringlog.errors import UnreadableBatch
from ringlog.net.wire_errors import NUMBERS
from ringlog.records.encode import encode
from tests.support import bad_lengths
from tests.support.amounts import amount
from tests.support.memory import peak_bytes
from tests.support.trial import Trial
from tests.support.unharmed import GROWTH_MAX_BYTES, OURS, answer, unharmed


@pytest.mark.parametrize("frames", [bad_lengths.headers, bad_lengths.produced, bad_lengths.controls])
def test_a_length_that_is_not_true_is_answered_with_a_typed_error(
    shared_trial: Trial, frames: Callable[[int], dict[str, bytes]]
):
    with unharmed(shared_trial), shared_trial.client() as client:
        (partition,) = client.create_topic(frames.__name__).partitions
        for _ in range(amount(short=1, full=40)):
            for what, frame in frames(partition.partition).items():
                error = answer(client, frame)
                assert error.code in NUMBERS, f"{what}: {error}"
                assert error.code not in OURS, f"{what}: {error}"
        assert client.end_offset(partition.partition) == 0, "nothing of it is in the log"


def test_a_length_inside_of_compressed_records_is_a_typed_error_of_the_reader_who_may_go_on(
    shared_trial: Trial,
):
    folded = bad_lengths.folded()
    with unharmed(shared_trial), shared_trial.client() as client:
        (partition,) = client.create_topic("folded").partitions
        for data in folded.values():
            client.produce_bytes(partition.partition, data)
        client.produce_bytes(partition.partition, bytes(encode([b"behind"], timestamps=1)))

        def read() -> None:
            with Consumer(bootstrap=shared_trial.node.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([("folded", 0)])
                for offset, what in enumerate(folded):
                    poll = consumer.poll if offset % 2 else consumer.poll_arrow
                    with pytest.raises(UnreadableBatch) as caught:
                        raise AssertionError(f"{what}: read as {poll(timeout_ms=5000)}")
                    assert caught.value.next_offset == offset + 1, what
                    consumer.seek(("folded", 0), caught.value.next_offset)
                assert [record.value for record in consumer.poll(timeout_ms=5000)] == [b"behind"]

        assert peak_bytes(read) < GROWTH_MAX_BYTES
