"""Makes the format known to a Spark session, and checks that its workers can serve it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from ringlog.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_ASK = """
import importlib.util, json, sys
missing = [name for name in ("ringlog", "spark_bridge", "pyarrow", "pyspark") if not importlib.util.find_spec(name)]
print(json.dumps([sys.executable, "%d.%d" % sys.version_info[:2], ", ".join(missing)]))
"""
_START_S = 60


class Facts(NamedTuple):
    """What an interpreter says of itself."""

    executable: str
    version: str
    missing: str
    """Names of packages that it lacks, "" when it has all."""


def register(spark: SparkSession) -> None:
    """Let this session read and write the format "ringlog".

        spark_bridge.register(spark)
        spark.readStream.format("ringlog").option("subscribe", "orders").load()

    Sets the Spark setting without which filters are not pushed down. InvalidRequest when Python workers would run an
    interpreter that cannot serve the source: it says what to set. Those of executors on other hosts are not asked.
    """
    from spark_bridge.datasource import RinglogDataSource

    check_worker(facts_of(_worker_python(spark)), facts_of(sys.executable))
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(RinglogDataSource)


def _worker_python(spark: SparkSession) -> str:
    """What Spark starts for workers: as it chose when the session was made."""
    context = getattr(spark, "sparkContext", None)
    chosen = getattr(context, "pythonExec", None)
    return str(chosen or os.environ.get("PYSPARK_PYTHON") or "python3")


def facts_of(python: str) -> Facts:
    """Start an interpreter, and ask it."""
    found = shutil.which(python)
    if found is None:
        return Facts(python, "", "a Python that starts")
    ran = subprocess.run([found, "-c", _ASK], capture_output=True, text=True, timeout=_START_S, check=False)
    if ran.returncode:
        return Facts(found, "", "a Python that starts")
    return Facts(*json.loads(ran.stdout))


def check_worker(worker: Facts, driver: Facts) -> None:
    """InvalidRequest when a worker lacks a package, or is of another Python version than the driver."""
    hint = f"set PYSPARK_PYTHON={driver.executable} in the environment before the session is made"
    if worker.missing:
        raise InvalidRequest(
            f"Spark would run its Python workers with {worker.executable}, which lacks {worker.missing}: {hint}"
        )
    if worker.version != driver.version:
        raise InvalidRequest(
            f"Spark would run its Python workers with {worker.executable}, which is Python {worker.version}, and this "
            f"is {driver.version}: {hint}"
        )
