"""ringlog: a durable, partitioned commit log for Python teams and Spark pipelines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlog import errors as errors
    from ringlog.client.admin import Admin as Admin
    from ringlog.client.consumer import Consumer as Consumer
    from ringlog.client.producer import Producer as Producer
    from ringlog.node.embedded import embedded as embedded

__version__ = "0.1.0"

_HOMES = {
    "Admin": "ringlog.client.admin",
    "Consumer": "ringlog.client.consumer",
    "Producer": "ringlog.client.producer",
    "embedded": "ringlog.node.embedded",
}
"""Where the names of `ringlog` live. They are imported when first used, so that a broker imports no client."""

__all__ = ["Admin", "Consumer", "Producer", "__version__", "embedded", "errors"]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("ringlog.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ringlog' has no attribute '{name}'")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
