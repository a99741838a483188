"""One Spark session for all tests of a run: a JVM takes longer to start than most tests take."""

from __future__ import annotations

import os
import sys

import pytest

import spark_bridge
from spark_bridge.options import source_options
from tests.support.spark_home import FEW_THREADS, spark_home
from tests.support.stream_calls import SCHEMA


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = spark_home(tmp_path_factory.mktemp("spark-home"))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", FEW_THREADS)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    spark_bridge.register(session)
    yield session
    session.stop()


@pytest.fixture
def reader_of(ringlog_node):
    """Makes stream readers of the topic `orders`, without Spark."""
    from spark_bridge.stream_reader import StreamReader

    made = []

    def make(**options):
        given = {"bootstrap": ringlog_node.bootstrap, "columns": "partition,offset", "bridge": "off"}
        given |= {"subscribe": "orders", "startingOffsets": "earliest", **options}
        said = {name: value for name, value in given.items() if value is not None}
        made.append(StreamReader(source_options(said, streaming=True), SCHEMA))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()
