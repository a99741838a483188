"""Settings of a node: where they come from, and what is refused with a sentence that helps."""

from __future__ import annotations

import pytest

from ringlog.config import (
    NodeConfig,
    default_data_dir,
    load_config,
    parse_cores,
    require_listen,
)
from ringlog.errors import InvalidRequest


def config_file(tmp_path, text: str | bytes) -> str:
    path = tmp_path / "ringlog.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_what_is_given_wins_over_the_file_and_the_file_over_the_defaults(tmp_path):
    path = config_file(tmp_path, 'shards = 3\nnets = 2\ndata_dir = "/from/file"')
    config = load_config(path, shards=5, nets=None)
    assert (config.shards, config.nets, config.data_dir, config.pin) == (5, 2, "/from/file", True)


def test_an_unknown_setting_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(
        InvalidRequest, match=r"ringlog\.toml: no setting is named 'shard'; did you mean shards"
    ):
        load_config(config_file(tmp_path, "shard = 3"))


@pytest.mark.parametrize(
    "text", ["shards = ", 'shards = "3"', "data_dir = 5", "pin = 7", b"\xff\xfe", "[node]\nx=1"]
)
def test_a_file_that_is_wrong_is_refused_by_its_name(tmp_path, text):
    with pytest.raises(InvalidRequest, match=r"ringlog\.toml"):
        load_config(config_file(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_config(str(tmp_path / "nowhere.toml"))


@pytest.mark.parametrize(
    "setting",
    [
        {"shards": -1}, {"shards": 257}, {"nets": 0}, {"default_partitions": 0}, {"connections_max": 0},
        {"spin_us": -1}, {"spin_us": 10_001}, {"disk_depth": -1}, {"disk_depth": 1025}, {"group_bytes": 1},
        {"group_bytes": 3 << 20}, {"preallocate_bytes_max": 1}, {"preallocate_bytes_max": 1 << 30},
        {"net_cores": "all"}, {"replica_lag_time_max_ms": 999}, {"replica_lag_time_max_ms": 3_600_001},
        {"tail_bytes_per_shard": 1}, {"disk_engine": "floppy"}, {"metrics_listen": "here"},
        {"metrics_listen": "127.0.0.1:²"}, {"metrics_listen": "127.0.0.1:70000"}, {"metrics_listen": "0.0.0.0:9"},
    ],
)  # fmt: skip
def test_a_value_out_of_bounds_is_refused_by_its_name(setting):
    with pytest.raises(InvalidRequest, match=next(iter(setting))):
        NodeConfig(data_dir="/x", **setting)


@pytest.mark.parametrize(
    "listen", ["", "9400", "http://127.0.0.1:1", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x",
               "tcp://127.0.0.1:65536", "tcp://127.0.0.1:²", "tcp://127.0.0.1:-1", "ipc://", "ipc://node.sock"]
)  # fmt: skip
def test_an_address_that_is_none_is_refused(listen):
    with pytest.raises(InvalidRequest, match="listen="):
        require_listen(listen, insecure=True)


LOOPBACK = ["tcp://127.0.0.1:0", "tcp://127.9.9.9:1", "tcp://localhost:1", "tcp://[::1]:1", "ipc:///tmp/x"]
OPEN = ["tcp://0.0.0.0:1", "tcp://*:1", "tcp://10.0.0.1:1", "tcp://[::]:1", "tcp://127.example.org:1",
        "tcp://localhost.example.org:1", "tcp://eth0:1"]  # fmt: skip


@pytest.mark.parametrize("listen", LOOPBACK)
def test_this_host_may_always_be_listened_to(listen):
    require_listen(listen, insecure=False)


@pytest.mark.parametrize("listen", OPEN)
def test_other_hosts_need_the_word_insecure(listen):
    with pytest.raises(InvalidRequest, match="--insecure"):
        require_listen(listen, insecure=False)
    require_listen(listen, insecure=True)


def test_the_data_directory_follows_the_environment():
    assert default_data_dir({"RINGLOG_DATA_DIR": "/d", "HOME": "/h"}) == "/d"
    assert default_data_dir({"XDG_DATA_HOME": "/xdg", "HOME": "/h"}) == "/xdg/ringlog"


def test_without_a_number_there_is_a_shard_for_each_core():
    assert NodeConfig(data_dir="/x").shard_count >= 1
    assert NodeConfig(data_dir="/x", shards=7).shard_count == 7


def test_the_file_in_the_data_directory_is_read_when_no_other_is_named(tmp_path):
    (tmp_path / "node.toml").write_text("shards = 3\nspin_us = 50\n")
    found = load_config(data_dir=str(tmp_path))
    assert (found.shards, found.spin_us, found.data_dir) == (3, 50, str(tmp_path))
    assert load_config(data_dir=str(tmp_path), shards=5).shards == 5, "what is given wins"
    other = tmp_path / "other.toml"
    other.write_text("nets = 2\n")
    named = load_config(str(other), data_dir=str(tmp_path))
    assert (named.nets, named.shards) == (2, 0), "a file that is named is the only one"


def test_the_file_of_the_usual_data_directory_is_found_through_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("RINGLOG_DATA_DIR", str(tmp_path))
    assert load_config().nets == 1
    (tmp_path / "node.toml").write_text("nets = 4\n")
    assert load_config().nets == 4 and load_config().data_dir == str(tmp_path)


def test_a_file_in_the_data_directory_cannot_send_the_node_elsewhere(tmp_path):
    (tmp_path / "node.toml").write_text('data_dir = "/elsewhere"\n')
    assert load_config(data_dir=str(tmp_path)).data_dir == str(tmp_path)


@pytest.mark.parametrize("text", ["x", "1-", "3-1", "1,,2", "-1", "1;2", "99999"])
def test_a_list_of_cores_that_is_none_is_refused(text):
    with pytest.raises(InvalidRequest, match="shard_cores"):
        NodeConfig(data_dir="/x", shard_cores=text)


def test_a_list_of_cores_keeps_its_order():
    assert parse_cores("8,0-2") == [8, 0, 1, 2]


THREE = "1@127.0.0.1:9410,2@127.0.0.1:9420,3@127.0.0.1:9430"


def test_a_node_of_a_cluster_knows_the_others_and_where_it_is_fetched_from():
    config = NodeConfig(data_dir="/x", node_id=2, cluster=THREE)
    assert config.cluster_members[3] == "tcp://127.0.0.1:9430"
    assert config.peer_listen == "tcp://127.0.0.1:9421"
    alone = NodeConfig(data_dir="/x")
    assert (alone.cluster_members, alone.peer_listen) == ({}, "")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"cluster": THREE}, "--node-id"),
        ({"cluster": THREE, "node_id": 4}, "node_id=4"),
        ({"node_id": 1}, "--cluster"),
        ({"rack": "r1"}, "--cluster"),
        ({"cluster": "1@127.0.0.1", "node_id": 1}, "ID@HOST:PORT"),
        ({"cluster": "127.0.0.1:9410", "node_id": 1}, "ID@HOST:PORT"),
        ({"cluster": "0@127.0.0.1:9410", "node_id": 1}, "ids from 1"),
        ({"cluster": "1@127.0.0.1:65535", "node_id": 1}, "ports from 1 to 65534"),
        ({"cluster": "1@127.0.0.1:9410,1@127.0.0.1:9420", "node_id": 1}, "named twice"),
        ({"cluster": "1@127.0.0.1:9410,2@127.0.0.1:9411", "node_id": 1}, "leave a port between"),
        ({"cluster": "1@10.0.0.1:9410", "node_id": 1}, "--insecure"),
        ({"cluster": THREE, "node_id": 1, "listen": "ipc:///tmp/x"}, "clients of a cluster"),
        ({"cluster": THREE, "node_id": 1, "listen": "tcp://0.0.0.0:9400", "insecure": True}, "advertise"),
        ({"cluster": THREE, "node_id": 1, "advertise": "somewhere"}, "advertise="),
    ],
)
def test_a_cluster_that_could_not_work_is_refused_with_what_to_do(setting, says):
    with pytest.raises(InvalidRequest, match=says):
        NodeConfig(data_dir="/x", **setting)


def test_a_node_that_listens_everywhere_tells_clients_one_address():
    settings = {"cluster": THREE, "node_id": 1, "listen": "tcp://*:9400", "insecure": True}
    assert NodeConfig(data_dir="/x", advertise="tcp://log-1:9400", **settings).advertise


@pytest.mark.parametrize("listen", ["0.0.0.0:9401", "[::]:9401", "metrics.example.org:9401"])
def test_metrics_for_other_hosts_are_refused_with_what_they_would_show_and_nothing_else(listen):
    with pytest.raises(InvalidRequest) as refused:
        NodeConfig(data_dir="/tmp/x", metrics_listen=listen)
    assert str(refused.value) == (
        f"metrics_listen={listen!r}: every host that reaches it could read the metrics. "
        "Use 127.0.0.1:9401, or add --insecure if they may"
    )
    assert NodeConfig(data_dir="/tmp/x", metrics_listen=listen, insecure=True).metrics_listen == listen


@pytest.mark.parametrize("wrong", ["http://127.0.0.1:9401", ":9401", "9401"])
def test_an_address_of_metrics_is_a_host_and_a_port(wrong):
    with pytest.raises(InvalidRequest, match="use HOST:PORT"):
        NodeConfig(data_dir="/tmp/x", metrics_listen=wrong)


def test_a_node_of_a_cluster_that_is_not_told_which_one_it_is_says_so():
    with pytest.raises(
        InvalidRequest, match=r"node_id is missing\. Say with --node-id which of 1, 2 in cluster="
    ):
        NodeConfig(data_dir="/d", cluster="1@127.0.0.1:9411,2@127.0.0.1:9421")
    with pytest.raises(InvalidRequest, match="node_id=3 is not in cluster="):
        NodeConfig(data_dir="/d", node_id=3, cluster="1@127.0.0.1:9411,2@127.0.0.1:9421")
