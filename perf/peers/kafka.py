"""A Kafka of one node: KRaft, storage formatted in a fresh directory, run with the JVM from Maven's jars."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from perf.peers.fetch import PeerUnavailable, kafka_jars, require
from perf.peers.process import free_port, server
from perf.peers.settings import KAFKA_BROKER, KAFKA_HEAP, KAFKA_JVM, Setting, values_of

TOOL_PATIENCE_S = 600
_WARNINGS = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class KafkaBroker(NamedTuple):
    """A Kafka that runs beside this process."""

    bootstrap: str
    """What clients take: `bootstrap.servers`."""
    pid: int
    jars: str
    directory: str

    def create_topic(self, name: str, partitions: int, settings: Sequence[Setting] = ()) -> None:
        """Make a topic with one replica. Needs `confluent-kafka`."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=values_of(settings))
        for made in admin.create_topics([topic], operation_timeout=60).values():
            made.result(120)

    def delete_topic(self, name: str) -> None:
        """Forget a topic; Kafka removes its files a minute later."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for gone in admin.delete_topics([name], operation_timeout=60).values():
            gone.result(60)

    def tool(self, main: str, *arguments: str) -> str:
        """Run one of Kafka's command line tools in a JVM of its own; what it printed."""
        return run_tool(self.jars, main, *arguments)


@contextmanager
def kafka(directory: str, *, fetch: bool = True) -> Iterator[KafkaBroker]:
    """Start a Kafka whose data lives in an empty directory, and stop it at the end of the block.

    PeerUnavailable when there is no Java, or its jars cannot be fetched.
    """
    jars = kafka_jars(fetch=fetch)
    require("java", "a Java runtime, 17 or newer: apt-get install openjdk-17-jre-headless")
    directory = os.path.abspath(directory)
    os.makedirs(directory, exist_ok=True)
    port, controller_port = free_port(), free_port()
    properties = os.path.join(directory, "server.properties")
    with open(properties, "w", encoding="utf-8") as file:
        file.write(server_properties(os.path.join(directory, "data"), port, controller_port))
    run_tool(jars, "kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", properties)
    memory = [setting.name + setting.value for setting in KAFKA_HEAP]
    command = [
        "java",
        *memory,
        *_jvm_flags(KAFKA_JVM),
        _WARNINGS,
        "-cp",
        f"{jars}/*",
        "kafka.Kafka",
        properties,
    ]
    with server("kafka", command, directory, port) as pid:
        yield KafkaBroker(f"127.0.0.1:{port}", pid, jars, directory)


def server_properties(data_dir: str, port: int, controller_port: int) -> str:
    """The broker's configuration file.

    >>> "listeners=PLAINTEXT://127.0.0.1:9092" in server_properties("/d", 9092, 9093)
    True
    """
    own = {
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data_dir,
    }
    return "".join(f"{name}={value}\n" for name, value in {**own, **values_of(KAFKA_BROKER)}.items())


def cluster_id() -> str:
    """A new cluster's name in Kafka's spelling: 16 random bytes, base64 without padding, no leading dash."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def run_tool(jars: str, main: str, *arguments: str) -> str:
    """Run a main class of Kafka's jars; what it printed. PeerUnavailable with its last line when it fails."""
    command = ["java", "-Xmx1g", "-XX:+UseG1GC", _WARNINGS, "-cp", f"{jars}/*", main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_PATIENCE_S, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise PeerUnavailable(f"{main.rpartition('.')[2]} of Kafka failed: {said}")
    return done.stdout


def _jvm_flags(settings: Sequence[Setting]) -> list[str]:
    """`-XX:+UseG1GC`, `-XX:MaxGCPauseMillis=20`, `-Xshare:auto`: three spellings of one JVM."""
    flags = []
    for name, value, _ in settings:
        joint = ":" if name == "-Xshare" else "="
        flags.append(f"{name}{joint}{value}" if value else name)
    return flags
