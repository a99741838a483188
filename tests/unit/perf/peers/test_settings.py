"""Every setting of a peer has a reason and stands once; Kafka's files say what the settings say."""

from __future__ import annotations

import pytest

from perf.peers import rabbitmq, settings
from perf.peers.fetch import maven_pom
from perf.peers.kafka import cluster_id, server_properties
from perf.peers.settings import Setting, values_of


def tables():
    for name, value in vars(settings).items():
        if isinstance(value, tuple) and value and all(isinstance(item, Setting) for item in value):
            yield pytest.param(value, id=name)


@pytest.mark.parametrize("table", list(tables()))
def test_each_setting_has_a_reason_and_stands_once(table):
    assert all(len(setting.why) > 10 for setting in table)
    assert len({setting.name for setting in table}) == len(table)


@pytest.mark.parametrize("table", [settings.NATS_SYNC, settings.REDIS_FSYNC])
def test_flushed_is_never_configured_like_written(table):
    assert table["D1"].value == table["D0"].value
    assert table["D2"].value == "always"


def test_the_broker_listens_on_loopback_only_and_keeps_its_data_where_it_is_told():
    made = dict(line.split("=", 1) for line in server_properties("/data/here", 1234, 1235).splitlines())
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:1234,CONTROLLER://127.0.0.1:1235"
    assert made["log.dirs"] == "/data/here"
    assert values_of(settings.KAFKA_BROKER).items() <= made.items()


def test_rabbitmq_keeps_to_loopback_and_to_its_directory(tmp_path):
    listens = [line for line in rabbitmq.server_config(1234).splitlines() if "listeners" in line]
    assert listens == ["listeners.tcp = none", "stream.listeners.tcp.1 = 127.0.0.1:1234"]
    told = rabbitmq.server_environment(str(tmp_path), 1235, 1236)
    assert (
        told["ERL_EPMD_ADDRESS"] == "127.0.0.1"
        and "{127,0,0,1}" in told["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    )
    assert (told["ERL_EPMD_PORT"], told["RABBITMQ_DIST_PORT"]) == ("1235", "1236")
    places = [told["HOME"], *(value for name, value in told.items() if name.endswith(("_FILE", "_BASE")))]
    assert len(places) == 7 and all(place.startswith(str(tmp_path)) for place in places)


def test_a_cluster_id_never_looks_like_an_option():
    assert all(not cluster_id().startswith("-") and len(cluster_id()) == 22 for _ in range(300))


def test_maven_is_asked_for_the_server_and_the_tools_of_one_version():
    pom = maven_pom([("g", "kafka_2.13", "9.9"), ("g", "kafka-tools", "9.9")])
    assert "<artifactId>kafka_2.13</artifactId><version>9.9</version>" in pom
    assert "<artifactId>kafka-tools</artifactId><version>9.9</version>" in pom
