"""Fixtures for the tests of programs that use ringlog; pytest finds them by itself once ringlog is installed.

    def test_orders_arrive(ringlog_node):
        with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
            assert producer.produce("orders", b"lamp").result(5).offset == 0

One node serves all tests of a run (of a worker, with xdist), since starting one takes most of a second. Each test finds
it without topics and groups of other tests: what a test creates is deleted when it ends. A group whose consumers are
still open then keeps its name, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ringlog.node.embedded import EmbeddedNode


@pytest.fixture(scope="session")
def ringlog_session_node() -> Iterator[EmbeddedNode]:
    """A throw-away node that lives as long as the run. Take `ringlog_node`, unless a fixture of yours lives longer."""
    import ringlog

    with ringlog.embedded() as node:
        yield node


@pytest.fixture
def ringlog_node(ringlog_session_node: EmbeddedNode) -> Iterator[EmbeddedNode]:
    """A running node: `.bootstrap` for clients, `.data_dir` where its files are. Topics last as long as the test."""
    import ringlog

    with ringlog.Admin(bootstrap=ringlog_session_node.bootstrap) as admin:
        before = set(admin.list_topics())
        yield ringlog_session_node
        for name in admin.list_topics():
            if name not in before and not name.startswith("__"):
                admin.delete_topic(name)
        for group in admin.list_groups():
            with suppress(ringlog.errors.GroupNotEmpty):
                admin.delete_group(group.group_id)
