"""Connections against a ROUTER in a thread: answers, errors, lost nodes, forks, and threads that go."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import threading
import time
import weakref

import pytest

from ringlog.client import connection as module
from ringlog.client import outage
from ringlog.client.connection import Connection
from ringlog.client.link import Link
from ringlog.client.settings import ClientSettings
from ringlog.errors import (
    ClientClosed,
    ControllerUnavailable,
    InvalidRequest,
    InvariantBroken,
    NodeUnavailable,
    RequestTimeout,
    UnknownTopic,
)
from ringlog.net.framing import Api
from ringlog.net.messages import InitProducerReply, InitProducerRequest, encode_body
from ringlog.net.session import Request
from tests.support.router import RouterNode


@pytest.fixture
def node(tmp_path):
    with RouterNode() as made:
        yield made


@pytest.fixture
def connection(node):
    made = Connection(ClientSettings(bootstrap=node.bootstrap))
    yield made
    made.close()


def ask(connection, **kwargs):
    return connection.call(Api.INIT_PRODUCER, InitProducerRequest(), InitProducerReply, **kwargs).producer_id


def client_threads():
    return [one for one in threading.enumerate() if one.name.startswith("ringlog-client")]


def test_a_call_returns_the_reply(connection):
    assert ask(connection) == 1001


def test_an_error_of_the_node_is_raised_as_its_type(node, connection):
    def refuse(header, body):
        if header.api_key == Api.INIT_PRODUCER:
            raise InvalidRequest("not so")

    node.before = refuse
    with pytest.raises(InvalidRequest, match="not so"):
        ask(connection)


def test_a_retriable_error_is_retried_until_it_helps(node, connection):
    failures = [ControllerUnavailable("soon")] * 2

    def fail_twice(header, body):
        if header.api_key == Api.INIT_PRODUCER and failures:
            raise failures.pop()

    node.before = fail_twice
    retried = []
    assert ask(connection, on_retry=retried.append) == 1001
    assert len(retried) == 2


def test_no_answer_is_a_timeout(node, connection):
    node.before = lambda header, body: b"" if header.api_key == Api.INIT_PRODUCER else None
    with pytest.raises(TimeoutError) as caught:
        ask(connection, timeout_s=0.3)
    assert isinstance(caught.value, RequestTimeout)


def test_a_reply_that_nobody_waits_for_any_more_is_taken_and_counts_as_received(node, connection):
    ask(connection)
    ask(connection)
    node.delay_s = 0.2
    with pytest.raises(RequestTimeout):
        ask(connection, timeout_s=0.1)
    node.delay_s = 0.0
    time.sleep(0.4)
    ask(connection)
    first, second, late, last = (one.received for one in node.seen if one.api_key == Api.INIT_PRODUCER)
    assert last - late == late - second == second - first > 0


def test_no_node_at_all_says_how_to_start_one():
    connection = Connection(ClientSettings(bootstrap="127.0.0.1:1"))
    with pytest.raises(NodeUnavailable, match="ringlog start"):
        ask(connection, timeout_s=0.3)
    connection.close()


def test_waiting_for_a_node_is_told_once_after_a_while_with_the_address_and_what_to_do(caplog, monkeypatch):
    monkeypatch.setattr(outage, "TELL_AFTER_S", 0.2)
    connection = Connection(ClientSettings(bootstrap="127.0.0.1:1"))
    with pytest.raises(NodeUnavailable):
        ask(connection, timeout_s=1.0)
    connection.close()
    [told] = [one for one in caplog.records if one.levelname == "WARNING"]
    assert told.name.startswith("ringlog.")
    assert told.getMessage() == (
        "no node answers at 127.0.0.1:1. Is one running? `ringlog start` starts one; or check the address (bootstrap). "
        "It is tried again"
    )


def test_somebody_who_is_no_node_is_told_of_as_such(caplog, monkeypatch):
    monkeypatch.setattr(outage, "TELL_AFTER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        connection = Connection(ClientSettings(bootstrap=where))
        with pytest.raises(NodeUnavailable, match=f"what listens at {where} does not answer as a node"):
            ask(connection, timeout_s=1.0)
        connection.close()
    assert f"what listens at {where} does not answer as a node of ringlog does" in caplog.text


def test_a_node_that_comes_in_time_is_not_waited_for_aloud(caplog, node, connection):
    ask(connection)
    assert not [one for one in caplog.records if one.levelname == "WARNING"]


def test_a_node_that_goes_fails_requests_at_once_and_one_that_comes_back_is_used(node, connection):
    ask(connection)
    node.before = lambda header, body: b"" if header.api_key == Api.INIT_PRODUCER else None
    errors, answered = [], threading.Event()

    def on_error(error):
        errors.append(error)
        answered.set()

    body = encode_body(InitProducerRequest())
    connection.send(Request(Api.INIT_PRODUCER, body, on_error=on_error, timeout_s=60))
    while not any(header.api_key == Api.INIT_PRODUCER for header in node.seen[2:]):
        time.sleep(0.005)
    node.before = lambda header, body: None
    node.restart()
    assert answered.wait(5)
    assert isinstance(errors[0], NodeUnavailable)
    assert ask(connection) > 1001


def test_a_client_of_the_same_host_moves_to_ipc(tmp_path):
    with RouterNode(ipc=f"ipc://{tmp_path}/s") as node:
        connection = Connection(ClientSettings(bootstrap=node.bootstrap))
        ask(connection)
        assert connection._loop._links.home.endpoint == node.ipc
        connection.close()


def test_an_ipc_endpoint_that_does_not_answer_is_given_up_for_tcp(node, tmp_path):
    node.ipc = f"ipc://{tmp_path}/nobody"
    connection = Connection(ClientSettings(bootstrap=node.bootstrap))
    assert ask(connection, timeout_s=10) == 1001
    assert connection._loop._links.home.endpoint == node.endpoint
    connection.close()


def test_an_ipc_endpoint_of_a_node_that_is_slow_is_waited_for(tmp_path):
    """On a busy machine a handshake takes its time, and on tcp:// a node cannot see its client die."""
    with RouterNode(ipc=f"ipc://{tmp_path}/s") as node, socket.socket(socket.AF_UNIX) as door:
        node.ipc = f"ipc://{tmp_path}/slow"
        door.bind(f"{tmp_path}/slow")
        door.listen()
        threading.Thread(target=open_late, args=(door, f"{tmp_path}/s"), daemon=True).start()
        connection = Connection(ClientSettings(bootstrap=node.bootstrap))
        ask(connection, timeout_s=10)
        assert connection._loop._links.home.endpoint == node.ipc
        connection.close()


def open_late(door: socket.socket, behind: str) -> None:
    """Lets one client through to the socket behind, after more time than another endpoint would have."""
    outer, _ = door.accept()
    time.sleep(1.5)
    with outer, socket.socket(socket.AF_UNIX) as inner:
        inner.connect(behind)
        other = {outer: inner, inner: outer}
        while True:
            for end in select.select(list(other), [], [])[0]:
                data = end.recv(1 << 16)
                if not data:
                    return
                other[end].sendall(data)


def test_the_next_bootstrap_address_is_tried(node):
    connection = Connection(ClientSettings(bootstrap=f"127.0.0.1:1,{node.bootstrap}"))
    assert ask(connection, timeout_s=10) == 1001
    connection.close()


def test_a_topic_is_asked_for_once_and_again_after_it_is_forgotten(node, connection):
    node.create("t", 3)

    def questions():
        return sum(header.api_key == Api.METADATA and header.body_bytes > 3 for header in node.seen)

    assert len(connection.topic("t").partitions) == 3
    connection.topic("t")
    assert questions() == 1
    connection.forget("t")
    connection.topic("t")
    assert questions() == 2


def test_a_topic_that_is_not_there_is_an_error_unless_it_may_be_created(connection):
    with pytest.raises(UnknownTopic, match="ringlog topic create"):
        connection.topic("missing")
    assert connection.topic("missing", create=True).name == "missing"


def test_topic_now_never_waits():
    connection = Connection(ClientSettings(bootstrap="127.0.0.1:1"))
    assert connection.topic_now("t") is None  # nobody is there who could answer
    connection.close()


def test_topic_now_knows_soon(node, connection):
    node.create("t", 3)
    until_s = time.monotonic() + 5
    while connection.topic_now("t") is None and time.monotonic() < until_s:
        time.sleep(0.01)
    assert connection.topic_now("t").name == "t"


def test_a_tick_runs_on_the_io_thread_when_it_asked_to(connection):
    class Ticker:
        def __init__(self):
            self.times = []

        def tick(self, now_s):
            assert connection.on_io_thread()
            self.times.append(now_s)
            return now_s + 0.02

    ticker = Ticker()
    connection.on_tick(ticker.tick)
    ask(connection)
    time.sleep(0.2)
    assert len(ticker.times) >= 4


def test_requests_that_come_while_the_thread_looks_at_others_do_not_end_it():
    """Nobody listens there, so that all of them wait to be sent."""
    lonely = Connection(ClientSettings(bootstrap="127.0.0.1:1"))
    failed = []

    def send_many() -> None:
        for _ in range(3000):
            lonely.send(Request(Api.METADATA, b"", lambda *_: None, failed.append, timeout_s=0.3))
            lonely.wake()

    threads = [threading.Thread(target=send_many) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until = time.monotonic() + 30
    while len(failed) < 9000 and time.monotonic() < until:
        time.sleep(0.01)
    lonely.close()
    assert {type(error) for error in failed} == {NodeUnavailable}


def test_what_is_not_answered_when_a_client_closes_fails(node, connection):
    node.before = lambda header, body: b"" if header.api_key == Api.INIT_PRODUCER else None
    errors = []
    for _ in range(3):
        body = encode_body(InitProducerRequest())
        connection.send(Request(Api.INIT_PRODUCER, body, on_error=errors.append))
    connection.close()
    assert [type(error) for error in errors] == [ClientClosed] * 3
    with pytest.raises(ClientClosed):
        ask(connection)


def test_a_client_that_nobody_holds_leaves_no_thread(node):
    before = len(os.listdir("/proc/self/task"))
    connection = Connection(ClientSettings(bootstrap=node.bootstrap))
    ask(connection)
    assert client_threads()
    gone = weakref.ref(connection)
    del connection
    gc.collect()
    assert gone() is None
    assert client_threads() == []
    assert len(os.listdir("/proc/self/task")) == before


def test_a_child_of_a_fork_has_a_client_that_works_and_the_parents_goes_on(node, connection):
    assert ask(connection) == 1001
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if ask(connection, timeout_s=10) == 1002 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert ask(connection) == 1003


def test_ctrl_c_interrupts_a_call(node, connection):
    node.before = lambda header, body: b"" if header.api_key == Api.INIT_PRODUCER else None
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ask(connection, timeout_s=30)
    assert time.monotonic() - began_s < 5


def test_an_idle_client_costs_no_cpu(connection):
    ask(connection)
    time.sleep(0.1)
    passes = []
    connection.on_tick(lambda now_s: passes.append(now_s))
    time.sleep(0.5)
    assert len(passes) <= 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_on_the_io_thread_is_told_to_everyone_who_comes_later(connection):
    ask(connection)
    connection.on_tick(lambda now_s: 1 // 0)
    until_s = time.monotonic() + 5
    while client_threads() and time.monotonic() < until_s:
        time.sleep(0.01)
    with pytest.raises(InvariantBroken, match="ZeroDivisionError"):
        ask(connection)
    with pytest.raises(InvariantBroken):
        connection.wake()


def test_an_address_that_can_be_none_is_one_where_nobody_listens_and_the_client_can_be_closed(monkeypatch):
    monkeypatch.setattr(module, "endpoints_of", lambda bootstrap: ["tcp://two words:9400"])
    connection = Connection(ClientSettings())
    with pytest.raises(NodeUnavailable, match="no node answers"):
        ask(connection, timeout_s=0.3)
    connection.close()
    assert not client_threads()


def test_a_socket_that_a_bug_left_open_does_not_keep_a_client_from_closing(node, monkeypatch):
    monkeypatch.setattr(Link, "close", lambda self: None)
    connection = Connection(ClientSettings(bootstrap=node.bootstrap))
    assert ask(connection) == 1001
    closing = threading.Thread(target=connection.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


def test_a_thread_that_has_the_number_of_the_ended_io_thread_is_not_taken_for_it(node, connection):
    ask(connection)
    loop = connection._loop
    connection.close()
    loop._thread._ident = threading.get_ident()
    assert not loop.on_thread()
    with pytest.raises(ClientClosed):
        ask(connection)


def test_what_no_frame_can_carry_is_refused(connection):
    for wrong in ("\ud800", "a\udcff"):
        with pytest.raises(InvalidRequest, match="cannot be sent"):
            connection.topic(wrong)
