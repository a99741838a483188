"""`make demo-spark`: a node, a stream of page views, the job, a plot and a check; ends by itself.

Exits with 1 when a count that the job wrote differs from what was sent.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time

from examples.page_views import expected, job, plot, views
from examples.page_views.watch import Watch
from ringlog.client.admin import Admin
from ringlog.node.embedded import embedded

PARTITIONS = 4
_SETTLED_S = 1.5
"""The watch goes on this long after the end, so that the plot shows the lag at rest."""


def run(directory: str, per_second: int, seconds: int, cores: str) -> list[str]:
    """The whole demonstration; what was wrong with the counts."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with embedded(data_dir=os.path.join(directory, "node")) as node:
        with Admin(node.bootstrap) as admin:
            admin.create_topic(job.VIEWS, PARTITIONS)
            admin.create_topic(job.COUNTS, 1, config={"cleanup.policy": "compact"})
        _say("starting Spark …")
        spark = job.session(f"local[{cores}]")
        spark.sparkContext.setLogLevel("ERROR")
        queries = job.start(spark, node.bootstrap, directory)
        # The first micro-batch compiles its plans and starts its workers: that is no lag of the pipeline.
        first = views.send_first(node.bootstrap)
        for query in queries:
            query.processAllAvailable()
        groups = ["page-counts-topic", "page-counts-parquet"]
        with Watch(node.bootstrap, groups) as watch:
            _say(
                f"sending {per_second:,} page views a second for {seconds} s, three times as many in between …"
            )
            sent = first + views.send(node.bootstrap, per_second, seconds)
            _say(f"{sent:,} views sent; the queries finish …")
            for query in queries:
                query.processAllAvailable()
            time.sleep(_SETTLED_S)
        for query in queries:
            query.stop()
        path = os.path.join(directory, "page-views.png")
        plot.draw(watch.samples, path)
        wanted = expected.from_input(node.bootstrap)
        wrong = expected.differences(wanted, expected.from_topic(node.bootstrap), "topic")
        wrong += expected.differences(
            wanted, expected.from_parquet(os.path.join(directory, "page-counts")), "Parquet"
        )
    counted = sum(wanted.values())
    if counted != sent:
        wrong.append(f"input: {counted:,} views in the topic instead of {sent:,}")
    _say(f"{len(wanted)} counts of {counted:,} views, in the compacted topic and in Parquet")
    _say(f"throughput and lag: {path}")
    return wrong


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """Parse, run, say whether the counts are right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", default="build/demo-spark", help="where all files go; emptied first")
    parser.add_argument("--per-second", type=int, default=20_000, help="page views sent in a second")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--cores", default="*", help="that Spark may use")
    given = parser.parse_args()
    wrong = run(os.path.abspath(given.dir), given.per_second, given.seconds, given.cores)
    for line in wrong[:20]:
        _say(f"WRONG {line}")
    _say("the counts are wrong" if wrong else "every count is what was sent: OK")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
