"""`python -m perf.peers`: fetch every peer that can be had here, and say what cannot."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from perf.peers.fetch import (
    PeerUnavailable,
    kafka_jars,
    nats_binary,
    python_package,
    rabbitmq_root,
    redis_binary,
)
from perf.peers.settings import AIOKAFKA, CONFLUENT_KAFKA, HIREDIS


def main() -> None:
    """One line for each peer: where it is, or why it is not here."""
    console = Console()
    fetches: dict[str, Callable[[], str | None]] = {
        "kafka": kafka_jars,
        "confluent-kafka": lambda: python_package("confluent_kafka", CONFLUENT_KAFKA),
        "aiokafka": lambda: python_package("aiokafka", AIOKAFKA),
        "nats": nats_binary,
        "redis": redis_binary,
        "hiredis": lambda: python_package("hiredis", HIREDIS),
        "rabbitmq": rabbitmq_root,
    }
    for name, fetch in fetches.items():
        console.print(f"{name:<16}", end="", highlight=False)
        try:
            console.print(fetch() or "installed", highlight=False, markup=False)
        except PeerUnavailable as missing:
            console.print(f"not here: {missing}", highlight=False, markup=False)


if __name__ == "__main__":
    main()
