"""Applying advice: the file keeps what is not tune's, values of the kernel are saved first, and all can be undone."""

from __future__ import annotations

import json

import pytest

from ringlog.config import NodeConfig, config_path_of, load_config
from ringlog.errors import InvalidRequest
from tests.support.facts import facts
from tuning.advice.advise import advise
from tuning.advice.setting import Policy, Setting, SystemChange
from tuning.apply.config_text import REPLACED, toml_value, tuned_text
from tuning.apply.put import put
from tuning.apply.undo import load_undo, take_back
from tuning.compare import tunable
from tuning.doctor.finding import KernelSetting

OWN = '# mine\nlisten = "tcp://127.0.0.1:9555"\nshards = 7  # as it was\n'


@pytest.fixture
def advice():
    return advise(facts(cores=4), Policy.LATENCY)


def change(path, value="none"):
    return SystemChange(KernelSetting(str(path), value), "scheduler", "it waits")


def test_a_node_reads_what_was_applied(tmp_path, advice):
    applied = put(advice, str(tmp_path), heading="a test")
    assert applied.config_path == config_path_of(str(tmp_path))
    config = load_config(data_dir=str(tmp_path))
    for name, value in advice.over({}).items():
        assert getattr(config, name) == value, name


def test_what_the_operator_set_stays_and_what_tune_replaces_stays_as_a_comment(tmp_path, advice):
    path = tmp_path / "node.toml"
    path.write_text(OWN)
    put(advice, str(tmp_path), heading="a test")
    text = path.read_text()
    assert text.startswith(
        '# mine\nlisten = "tcp://127.0.0.1:9555"\n# replaced by `ringlog tune`: shards = 7  # as it was\n'
    )
    assert load_config(data_dir=str(tmp_path)).listen == "tcp://127.0.0.1:9555"


def test_a_second_tune_replaces_the_first_and_nothing_else():
    first = tuned_text(OWN, [Setting("shards", 2, "a"), Setting("nets", 1, "b")], "one")
    second = tuned_text(first, [Setting("shards", 3, "c")], "two")
    assert second.count("by `ringlog tune`: it") == 1 and "nets" not in second and "shards = 3" in second
    assert second.startswith('# mine\nlisten = "tcp://127.0.0.1:9555"\n')


def test_undo_brings_back_the_file_of_before_the_first_tune(tmp_path, advice):
    path = tmp_path / "node.toml"
    path.write_text(OWN)
    put(advice, str(tmp_path), heading="one")
    put(advise(facts(cores=16)), str(tmp_path), heading="two")
    undone = take_back(str(tmp_path))
    assert path.read_text() == OWN and not undone.config_removed
    assert load_undo(str(tmp_path)) is None


def test_undo_removes_a_file_that_was_not_there(tmp_path, advice):
    put(advice, str(tmp_path), heading="one")
    assert take_back(str(tmp_path)).config_removed
    assert list(tmp_path.iterdir()) == []


def test_undo_does_not_lose_what_somebody_edited_since_unless_told(tmp_path, advice):
    put(advice, str(tmp_path), heading="one")
    (tmp_path / "node.toml").write_text("shards = 1\n")
    with pytest.raises(InvalidRequest, match="edited since"):
        take_back(str(tmp_path))
    assert (tmp_path / "node.toml").exists() and load_undo(str(tmp_path)) is not None
    take_back(str(tmp_path), force=True)
    assert not (tmp_path / "node.toml").exists()


def test_undo_without_a_tune_says_so(tmp_path):
    with pytest.raises(InvalidRequest, match="nothing was tuned"):
        take_back(str(tmp_path))


def test_an_undo_file_that_cannot_be_read_is_not_ignored(tmp_path):
    (tmp_path / "tune-undo.json").write_text("{}")
    with pytest.raises(InvalidRequest, match="by hand"):
        take_back(str(tmp_path))


def test_values_of_the_kernel_are_saved_changed_and_put_back(tmp_path, advice):
    scheduler, governor = tmp_path / "scheduler", tmp_path / "governor"
    scheduler.write_text("none mq-deadline [bfq]\n")
    governor.write_text("powersave\n")
    data = tmp_path / "data"
    applied = put(
        advice, str(data), heading="one", system=[change(scheduler), change(governor, "performance")]
    )
    assert (scheduler.read_text(), governor.read_text(), applied.failed) == ("none", "performance", [])
    put(advice, str(data), heading="again", system=[change(scheduler)])
    undone = take_back(str(data))
    assert (scheduler.read_text(), governor.read_text(), undone.failed) == ("bfq", "powersave", [])


def test_a_value_that_the_kernel_refuses_is_told_and_the_others_are_set(tmp_path, advice):
    refused = "/proc/sys/kernel/osrelease"  # can be read, and be written by nobody
    good = tmp_path / "good"
    good.write_text("old")
    applied = put(
        advice, str(tmp_path / "data"), heading="one", system=[change(refused), change(good, "new")]
    )
    assert good.read_text() == "new"
    assert len(applied.failed) == 1 and applied.failed[0].startswith(refused)


def test_a_value_that_cannot_be_saved_is_not_changed_nor_anything_else(tmp_path, advice):
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("old")
    bad.mkdir()
    data = tmp_path / "data"
    with pytest.raises(IsADirectoryError):
        put(advice, str(data), heading="one", system=[change(good, "new"), change(bad)])
    assert good.read_text() == "old"
    assert not (data / "node.toml").exists()


def test_nothing_is_written_that_a_node_would_refuse(tmp_path, advice):
    (tmp_path / "node.toml").write_text("no_such_setting = 1\n")
    with pytest.raises(InvalidRequest, match="no_such_setting"):
        put(advice, str(tmp_path), heading="one")
    assert (tmp_path / "node.toml").read_text() == "no_such_setting = 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["node.toml"]


def test_the_undo_file_is_there_before_anything_changes(tmp_path, advice, monkeypatch):
    monkeypatch.setattr("tuning.apply.put.write_kernel", lambda settings: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        put(advice, str(tmp_path), heading="one")
    assert json.loads((tmp_path / "tune-undo.json").read_text())["config_before"] is None
    assert take_back(str(tmp_path)).config_removed


def test_tables_of_the_operator_stay_tables_of_their_own(tmp_path, advice):
    path = tmp_path / "node.toml"
    path.write_text('nets = 2\n\n[topic_defaults]\n"segment.bytes" = 5000000\nshards = "not ours"\n')
    text = tuned_text(path.read_text(), advice.settings, "one")
    assert text.index("shards = ") < text.index("[topic_defaults]")
    assert text.endswith(f'{REPLACED}"segment.bytes" = 5000000\nshards = "not ours"\n')


@pytest.mark.parametrize(
    "own",
    [
        "",
        'nets = 1\n[topic_defaults]\n"flush" = "os"\n"segment.bytes" = 5000000\n',
        '[ "topic_defaults" ]\n"segment.bytes" = 5000000  # mine\nflush = "os"\n',
        'topic_defaults = {flush = "os", "segment.bytes" = 5000000}\nnets = 1\n',
        'topic_defaults."segment.bytes" = 5000000\ntopic_defaults.flush = "os"\n',
    ],
    ids=["nothing", "table", "quoted table", "inline table", "dotted names"],
)
def test_the_advised_segments_join_the_defaults_of_topics_however_they_are_written(tmp_path, advice, own):
    path = tmp_path / "node.toml"
    path.write_text(own)
    written = set()
    for _ in range(2):
        put(advice, str(tmp_path), heading="one")
        config = load_config(data_dir=str(tmp_path))
        assert config.shards == advice.values["shards"]
        assert config.topic_defaults == {
            "segment.bytes": advice.values["segment.bytes"],
            **({"flush": "os"} if own else {}),
        }
        written.add(path.read_text())
    assert len(written) == 1, "tuned again, it is the same"
    take_back(str(tmp_path))
    assert path.read_text() == own


def test_a_comparison_gives_advice_on_top_of_what_the_node_has(advice):
    before = {"nets": 3, "connections_max": 7, "topic_defaults": {"flush": "os", "segment.bytes": 5}}
    after = advice.over(before)
    assert after["connections_max"] == 7 and after["nets"] == advice.values["nets"]
    assert after["topic_defaults"] == {"flush": "os", "segment.bytes": advice.values["segment.bytes"]}
    assert "segment.bytes" not in after and before["nets"] == 3


def test_what_a_throw_away_node_is_told_can_be_written(tmp_path):
    config = tmp_path / "x.toml"
    told = tunable(NodeConfig(data_dir="/x", topic_defaults={"segment.ms": 5, "flush": "os"}))
    config.write_text("".join(f"{name} = {toml_value(value)}\n" for name, value in told.items()))
    assert load_config(str(config), data_dir="/x").topic_defaults == {"segment.ms": 5, "flush": "os"}
