"""Settings of a node: where they come from, and what is refused with a sentence that helps."""

from __future__ import annotations

import pytest

from ringlog.config import NodeConfig, default_bootstrap, default_data_dir, load_config, require_listen
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
        {"tail_bytes_per_shard": 1}, {"disk_engine": "floppy"}, {"metrics_listen": "here"},
        {"metrics_listen": "127.0.0.1:²"}, {"metrics_listen": "127.0.0.1:70000"}, {"metrics_listen": "0.0.0.0:9"},
    ],
)  # fmt: skip
def test_a_value_out_of_bounds_is_refused_by_its_name(setting):
    with pytest.raises(InvalidRequest, match=next(iter(setting))):
        NodeConfig(data_dir="/x", **setting)


@pytest.mark.parametrize(
    "listen", ["", "9400", "http://127.0.0.1:1", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x",
               "tcp://127.0.0.1:65536", "tcp://127.0.0.1:²", "tcp://127.0.0.1:-1", "ipc://"]
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


def test_the_bootstrap_address_follows_the_environment():
    assert default_bootstrap({"RINGLOG_BOOTSTRAP": "db:1"}) == "db:1"
    assert default_bootstrap({}) == "127.0.0.1:9400"


def test_without_a_number_there_is_a_shard_for_each_core():
    assert NodeConfig(data_dir="/x").shard_count >= 1
    assert NodeConfig(data_dir="/x", shards=7).shard_count == 7
