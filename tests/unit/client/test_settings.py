"""Settings: Kafka's names and meaning, and errors that say what is allowed."""

from __future__ import annotations

import pytest

from ringlog import Admin, Consumer, Producer
from ringlog.client.settings import ProducerSettings, acks_of, endpoints_of, settings_of
from ringlog.errors import InvalidRequest
from ringlog.model import Codec
from ringlog.net.framing import Acks
from ringlog.records.decode import decode
from ringlog.records.encode import encode


def made(**given):
    return settings_of(ProducerSettings, given)


def test_the_defaults_are_durable_and_idempotent():
    assert acks_of(made().acks) is Acks.ALL
    assert made().is_idempotent
    assert made().codec is Codec.NONE


@pytest.mark.parametrize("name", ["linger", "lingerms", "batch_sise", "compression", "idempotence"])
def test_an_unknown_setting_is_refused_with_the_nearest(name):
    near = {
        "linger": "linger_ms",
        "lingerms": "linger_ms",
        "batch_sise": "batch_size",
        "compression": "compression_type",
        "idempotence": "enable_idempotence",
    }
    with pytest.raises(InvalidRequest, match=f"did you mean '{near[name]}'"):
        Producer(**{name: 1})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"acks": 2}, "acks must be 'all'"),
        ({"acks": True}, "acks"),
        ({"compression_type": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ({"linger_ms": -1}, "at least 0"),
        ({"linger_ms": "5"}, "linger_ms"),
        ({"batch_size": 1 << 30}, "batch_size must lie between"),
        ({"buffer_memory": 10}, "buffer_memory"),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"enable_idempotence": "yes"}, "enable_idempotence"),
        ({"retry_backoff_ms": 100, "retry_backoff_max_ms": 10}, "retry_backoff_max_ms"),
        ({"bootstrap": "nowhere"}, "host:port"),
        ({"bootstrap": "http://a:1"}, "host:port"),
        ({"bootstrap": 17}, "bootstrap"),
        ({"bootstrap": "two words:1"}, "host:port"),
        ({"bootstrap": "*:9400"}, "host:port"),
        ({"bootstrap": "h:\u0661\u0662"}, "host:port"),
        ({"bootstrap": "\ud800:9400"}, "host:port"),
        ({"bootstrap": "h:1,a;b:2"}, "host:port"),
        ({"bootstrap": "ipc:///" + "x" * 200}, "ipc:///path"),
        ({"bootstrap": "ipc:///a\0b"}, "ipc:///path"),
        ({"client_id": "\ud800"}, "client_id"),
        ({"linger_ms": float("nan")}, "linger_ms must be at most"),
        ({"linger_ms": float("inf")}, "linger_ms must be at most"),
        ({"max_block_ms": 2**70}, "max_block_ms must be at most"),
        ({"delivery_timeout_ms": 2**31}, "delivery_timeout_ms must be at most"),
        ({"compression_type": "gzip", "compression_level": 10}, "of gzip must lie between 0 and 9"),
        ({"compression_type": "lz4", "compression_level": -1}, "of lz4 must lie between 1 and 17"),
        ({"compression_type": "zstd", "compression_level": 23}, "of zstd must lie between"),
        ({"compression_type": "snappy", "compression_level": 1}, "snappy has no levels"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(given, said):
    with pytest.raises(InvalidRequest, match=said):
        made(**given)


@pytest.mark.parametrize(
    ("codec", "levels"), [("gzip", (0, 1, 9)), ("lz4", (1, 17)), ("zstd", (-131072, -5, 0, 1, 22))]
)
def test_every_level_that_is_allowed_works(codec, levels):
    for level in levels:
        settings = made(compression_type=codec, compression_level=level)
        batch = encode([b"lamp" * 50], timestamps=0, codec=settings.codec, level=level)
        assert [record.value for record in decode(batch)] == [b"lamp" * 50]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("group", "did you mean 'group_id'"), ("value_deserializer", "There are: group_id, bootstrap, ")],
)
def test_a_setting_like_no_other_is_answered_with_all_that_there_are(name, hint):
    with pytest.raises(InvalidRequest, match=hint):
        Consumer(**{name: "x"})


@pytest.mark.parametrize("acks", ["all", -1, "-1"])
def test_all_has_three_names(acks):
    assert acks_of(acks) is Acks.ALL


def test_addresses_have_four_forms():
    assert endpoints_of("h:1,tcp://h:2, ipc:///p") == ["tcp://h:1", "tcp://h:2", "ipc:///p"]
    assert endpoints_of("") == ["tcp://127.0.0.1:9400"]
    assert endpoints_of("[::1]:9400") == ["tcp://[::1]:9400"]


def test_an_admin_takes_no_setting_of_a_producer():
    with pytest.raises(InvalidRequest, match="there is no setting 'linger_ms'"):
        Admin(linger_ms=5)


@pytest.mark.parametrize("acks", [0, 1, "0", "1"])
def test_idempotence_that_is_asked_for_needs_the_acks_of_all(acks):
    with pytest.raises(InvalidRequest, match="enable_idempotence=True needs acks='all'"):
        settings_of(ProducerSettings, {"acks": acks, "enable_idempotence": True})
    for word in ({}, {"enable_idempotence": None}, {"enable_idempotence": False}):
        assert settings_of(ProducerSettings, {"acks": acks, **word}).acks == acks


@pytest.mark.parametrize("acks", [{}, {"acks": "all"}, {"acks": -1}])
def test_idempotence_may_be_asked_for_and_is_there_without_a_word(acks):
    for word in ({}, {"enable_idempotence": True}):
        assert settings_of(ProducerSettings, {**acks, **word}).is_idempotent
    assert not settings_of(ProducerSettings, {**acks, "enable_idempotence": False}).is_idempotent


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_the_address_of_a_client_that_is_told_none_follows_the_environment(client, monkeypatch):
    def endpoints(*given):
        with client(*given) as made:
            return made._connection._view.named

    monkeypatch.delenv("RINGLOG_BOOTSTRAP", raising=False)
    assert endpoints() == ["tcp://127.0.0.1:9400"]
    monkeypatch.setenv("RINGLOG_BOOTSTRAP", "db1:9500")
    assert endpoints() == ["tcp://db1:9500"]
    assert endpoints("db2:9600") == ["tcp://db2:9600"], "what is said counts"
    monkeypatch.setenv("RINGLOG_BOOTSTRAP", " ")
    assert endpoints() == ["tcp://127.0.0.1:9400"]
    monkeypatch.setenv("RINGLOG_BOOTSTRAP", "nowhere")
    with pytest.raises(InvalidRequest, match="RINGLOG_BOOTSTRAP is wrong: bootstrap 'nowhere' is no address"):
        client()
