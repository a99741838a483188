"""Serves the metrics of a node over HTTP, in a process of its own."""

from __future__ import annotations

import signal
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer

from ringlog.errors import InvalidRequest, NodeFailed, RinglogError
from ringlog.net.listening import why_not_listening
from ringlog.node.children import stop_with_parent
from ringlog.node.group_metrics import Told, ask_node, lag_lines
from ringlog.node.identity import is_locked, read_info
from ringlog.node.metrics import prometheus_text

REQUEST_S = 1.0
"""A scraper asks at once. One that does not must not keep the others waiting: they are served one by one."""


def all_metrics(data_dir: str) -> str:
    """What the pages of a node say, and what it answers of its partitions' names and its groups."""
    info = read_info(data_dir)
    told = Told() if info is None or not is_locked(data_dir) else ask_node(info.endpoints[0])
    return prometheus_text(data_dir, told.names) + lag_lines(told.groups)


def serve_metrics(listen: str, data_dir: str, parent_pid: int) -> int:
    """Answer GET /metrics until killed, or until the supervisor dies."""
    if not stop_with_parent(parent_pid, signal.SIGKILL):
        return 1
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise InvalidRequest(f"metrics_listen={listen!r}: use HOST:PORT")

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S

        def do_GET(self) -> None:
            if self.path.split("?")[0] not in ("/", "/metrics"):
                self.send_error(404, "see /metrics")
                return
            try:
                body = all_metrics(data_dir).encode()
            except RinglogError as error:
                self.send_error(503, str(error))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not news."""

    class Server(HTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host.strip("[]") or "127.0.0.1", int(port)), Handler)
    except (OSError, OverflowError) as error:
        raise NodeFailed(why_not_listening(listen, error, "--metrics-listen")) from None
    server.serve_forever()
    return 0
