"""Makes the format known to a Spark session, and checks that its workers can serve it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ringlog.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Let this session read and write the format "ringlog".

        spark_bridge.register(spark)
        spark.readStream.format("ringlog").option("subscribe", "orders").load()

    Sets the Spark setting without which filters are not pushed down. InvalidRequest when Python workers would run
    another interpreter than this one, or one without pyarrow: it says what to set.
    """
    from spark_bridge.datasource import RinglogDataSource

    check_worker(_worker_facts(spark), _facts())
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(RinglogDataSource)


def _facts(_: object = None) -> dict[str, str]:
    """What a Python process says of itself. Runs in a worker, too: imports what it needs itself."""
    import importlib.util

    missing = [name for name in ("ringlog", "spark_bridge", "pyarrow") if not importlib.util.find_spec(name)]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"executable": sys.executable, "version": version, "missing": ", ".join(missing)}


def _worker_facts(spark: SparkSession) -> dict[str, str]:
    """The same of the interpreter that Spark starts for workers on this machine."""
    import json
    import shutil
    import subprocess

    command = spark.conf.get("spark.pyspark.python", None) or os.environ.get("PYSPARK_PYTHON") or "python3"
    found = shutil.which(command)
    if found is None:
        return {"executable": command, "version": "", "missing": "python"}
    script = (
        "import importlib.util as u, json, sys; print(json.dumps({"
        "'executable': sys.executable, 'version': '%d.%d' % sys.version_info[:2], 'missing': ', '.join("
        "n for n in ('ringlog', 'spark_bridge', 'pyarrow') if not u.find_spec(n))}))"
    )
    ran = subprocess.run([found, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode:
        return {"executable": found, "version": "", "missing": "a Python that starts"}
    facts: dict[str, str] = json.loads(ran.stdout)
    return facts


def check_worker(worker: dict[str, str], driver: dict[str, str]) -> None:
    """InvalidRequest when a worker lacks a package, or is of another Python version than the driver."""
    hint = f"set PYSPARK_PYTHON={driver['executable']} in the environment before the session is made"
    if worker["missing"]:
        raise InvalidRequest(
            f"Spark would run its Python workers with {worker['executable']}, which lacks {worker['missing']}: {hint}"
        )
    if worker["version"] != driver["version"]:
        raise InvalidRequest(
            f"Spark would run its Python workers with {worker['executable']}, which is Python {worker['version']}, "
            f"and this is {driver['version']}: {hint}"
        )
