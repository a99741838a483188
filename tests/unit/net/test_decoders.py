"""Decoders of bodies are made with their modules: two threads that make the first one at once end the process."""

from __future__ import annotations

import subprocess
import sys

import spark_bridge.bridge_wire
from ringlog.net import cluster_messages, group_messages, messages, move_messages

_RACE = """
import sys, threading
from ringlog.net.messages import MetadataReply, PartitionMetadata, TopicMetadata, decode_body, encode_body

sys.setswitchinterval(1e-6)
topic = TopicMetadata("t", "", 1, [PartitionMetadata(0, 0, 0, 1, -1)], {})
reply = MetadataReply("c", 1, 1, ["tcp://h:1"], "h", 1, [topic], {}, [], 1)
body, together, equal = encode_body(reply), threading.Barrier(4), []

def first() -> None:
    together.wait()
    equal.append(decode_body(body, MetadataReply) == reply)

threads = [threading.Thread(target=first) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(0 if equal == [True] * 4 else 1)
"""


def kinds_below(kind: type) -> set[type]:
    below = set(kind.__subclasses__())
    return below.union(*(kinds_below(one) for one in below))


def test_every_body_has_its_decoder_once_its_module_is_imported():
    modules = {one.__name__ for one in (messages, group_messages, cluster_messages, move_messages)}
    modules.add(spark_bridge.bridge_wire.__name__)
    kinds = {kind for kind in kinds_below(messages.Body) if kind.__module__ in modules}
    assert len(kinds) > 40
    assert kinds <= messages._decoders.keys()


def test_threads_that_are_the_first_to_decode_a_body_live():
    running = [subprocess.Popen([sys.executable, "-c", _RACE]) for _ in range(6)]
    assert [process.wait(60) for process in running] == [0] * 6
