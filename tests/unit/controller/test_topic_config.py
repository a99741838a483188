"""Settings of topics: what the controller lets pass, a shard can always use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.controller.topic_config import SETTINGS, check_config, node_defaults, with_defaults
from ringlog.errors import InvalidRequest
from ringlog.model import Codec
from ringlog.shard.hosting import log_settings

odd_texts = st.text(max_size=30) | st.from_regex(r"-*[0-9]{0,25}", fullmatch=True)
flush_texts = st.from_regex(r"interval:\d{0,9}", fullmatch=True) | st.sampled_from(
    ["ack", "os", "interval:²"]
)


def test_defaults_are_settings_that_pass_the_check():
    check_config(with_defaults({}))


@given(st.dictionaries(st.sampled_from(sorted(SETTINGS)), odd_texts | flush_texts, max_size=3))
def test_what_passes_the_check_makes_log_settings(config):
    try:
        check_config(config)
    except InvalidRequest:
        return
    log_settings(with_defaults(config))


@pytest.mark.parametrize(
    ("word", "codec"),
    [
        ("producer", None),
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_a_topic_may_have_a_codec_of_its_own(word, codec):
    check_config({"compression.type": word})
    assert log_settings(with_defaults({"compression.type": word})).codec is codec
    with pytest.raises(InvalidRequest, match="use producer or uncompressed or gzip"):
        check_config({"compression.type": f"{word}!"})


def test_defaults_of_a_node_are_checked_when_it_starts():
    assert node_defaults({"retention.ms": 5, "min.cleanable.dirty.ratio": 0.25}) == {
        "retention.ms": "5",
        "min.cleanable.dirty.ratio": "0.25",
    }
    for wrong in ({"retention": 5}, {"retention.ms": "soon"}):
        with pytest.raises(InvalidRequest, match="topic_defaults"):
            node_defaults(wrong)


@pytest.mark.parametrize("value", ["--5", "²", "9" * 5000, "", "1e9", "-1", " 7", "0x10"])
def test_a_number_that_is_none_is_refused_and_named(value):
    with pytest.raises(InvalidRequest, match=r"segment\.bytes"):
        check_config({"segment.bytes": value})


@pytest.mark.parametrize(
    "value", ["interval:0", "interval:²", "interval:", "interval:99999999", "ACK", "never"]
)
def test_a_flush_policy_that_no_log_has_is_refused(value):
    with pytest.raises(InvalidRequest, match="flush"):
        check_config({"flush": value})


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InvalidRequest, match=r"did you mean segment\.bytes"):
        check_config({"segment.byte": "1"})


def test_a_name_like_none_is_answered_with_all_there_are():
    with pytest.raises(InvalidRequest, match=r"there are: flush, "):
        check_config({"zzz": "1"})
