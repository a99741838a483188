"""Ringlog topics as Spark tables and streams: `register(spark)` makes the format "ringlog" known."""

from spark_bridge.registering import register

__all__ = ["register"]
