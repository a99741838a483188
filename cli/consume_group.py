"""Reads a topic as a member of a group for `ringlog consume --group`: what was printed is committed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cli.clients import open_admin, open_consumer
from cli.consume_run import POLL_MS, RECORDS_PER_POLL
from cli.output import GatheredOutput
from cli.record_format import BulkFormatter
from cli.topic_errors import naming_near_topics
from ringlog.errors import UnknownGroup

if TYPE_CHECKING:
    from ringlog import Consumer


def consume_as_group(
    bootstrap: str,
    topic: str,
    group: str,
    *,
    reset: str,
    count: int | None,
    follow: bool,
    formatter: BulkFormatter,
) -> None:
    """Print records until the count, the end or Ctrl-C. Each poll is committed once it was handed to stdout."""
    left = sys.maxsize if count is None else count
    with (
        naming_near_topics(topic, lambda: open_admin(bootstrap)),
        open_consumer(
            bootstrap,
            group_id=group,
            auto_offset_reset=reset,
            enable_auto_commit=False,
            client_id="ringlog-cli",
        ) as consumer,
        GatheredOutput() as out,
    ):
        consumer.partitions_for_topic(topic)  # a name that is not there is a mistake, and nothing to wait for
        consumer.subscribe([topic])
        while left:
            records = consumer.poll(timeout_ms=POLL_MS, max_records=min(left, RECORDS_PER_POLL))
            if records:
                out.write(formatter(records))
                out.flush()
                consumer.commit()
                left -= len(records)
            elif not follow and _is_at_end(consumer, bootstrap, group):
                return


def _is_at_end(consumer: Consumer, bootstrap: str, group: str) -> bool:
    """Whether nothing is left to read for this member now, also because the others have all partitions."""
    mine = consumer.assignment()
    if mine:
        return not any(map(consumer.lag, mine))
    try:
        with open_admin(bootstrap) as admin:
            described = admin.describe_group(group)
    except UnknownGroup:
        return False  # this member is on its way there
    # One that has just come gets its share once the others have given it up; then the group is stable again.
    known = {member.member_id: member for member in described.members}.get(consumer.member_id() or "")
    return described.state == "stable" and known is not None and not known.assigned
