"""The fixture that comes with the package: a node for every test, without topics of other tests."""

from __future__ import annotations

import os

import pytest

import ringlog


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_finds_no_topics_of_another(ringlog_node, time):
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        assert admin.list_topics() == []
        admin.create_topic("orders", num_partitions=1)
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        assert producer.produce("orders", b"lamp").result(10).offset == 0


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_finds_no_groups_of_another(ringlog_node, time):
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        assert admin.list_groups() == []
        admin.create_topic("orders", num_partitions=1)
        with ringlog.Consumer(bootstrap=ringlog_node.bootstrap, group_id="g") as consumer:
            consumer.assign([("orders", 0)])
            consumer.commit({("orders", 0): 0})
        assert [group.group_id for group in admin.list_groups()] == ["g"]


def test_the_node_keeps_its_data_where_it_says(ringlog_node):
    assert os.path.exists(os.path.join(ringlog_node.data_dir, "node.json"))
