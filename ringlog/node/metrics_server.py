"""Serves the metrics of a node over HTTP, in a process of its own."""

from __future__ import annotations

import signal
from http.server import BaseHTTPRequestHandler, HTTPServer

from ringlog.errors import InvalidRequest, RinglogError
from ringlog.node.children import stop_with_parent
from ringlog.node.group_metrics import group_text
from ringlog.node.identity import read_info
from ringlog.node.metrics import prometheus_text


def all_metrics(data_dir: str) -> str:
    """What the pages of a node say, and what it answers of its groups."""
    text = prometheus_text(data_dir)
    info = read_info(data_dir)
    return text if info is None else text + group_text(info.endpoints[0])


def serve_metrics(listen: str, data_dir: str, parent_pid: int) -> int:
    """Answer GET /metrics until killed, or until the supervisor dies."""
    if not stop_with_parent(parent_pid, signal.SIGKILL):
        return 1
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise InvalidRequest(f"metrics_listen={listen!r}: use HOST:PORT")

    class Handler(BaseHTTPRequestHandler):
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

    HTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler).serve_forever()
    return 0
