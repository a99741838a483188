"""Spark as tests start it: the same programs, that begin to work sooner."""

from __future__ import annotations

import os
from pathlib import Path

FEW_THREADS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java: what it would compile better in the background takes short queries' cores from them."""


def spark_home(folder: Path) -> str:
    """A home of Spark that is the installed one but for its zip of PySpark. Workers would compile that anew each time
    one starts, 0.7 core seconds; without, they find the same modules where they are installed, compiled."""
    import pyspark

    folder.mkdir(exist_ok=True)
    for entry in os.scandir(os.path.dirname(pyspark.__file__)):
        if entry.name != "python":
            (folder / entry.name).symlink_to(entry.path)
    return str(folder)
