"""The way to the records, chosen by the driver and sent with each range: a bridge that answers, else the brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from spark_bridge.bridge_client import bridge_cluster, unreachable
from spark_bridge.bridge_wire import default_bridge
from spark_bridge.options import SourceOptions

_LOOK_AGAIN_S = 30.0
_HOW = ". For one: ringlog start --bridge. To do without, and not be told: option bridge=off"

log = logging.getLogger(__name__)


class Route(NamedTuple):
    """One way."""

    bridge: str | None
    """Where a bridge of this cluster answers; None: read the brokers."""

    @classmethod
    def found(cls, options: SourceOptions, before: Route | None = None) -> Route:
        """Look for the bridge that the options name, or for one beside the node; one that was found `before` is good
        as long as it is there. That there is none is said when a query begins and when it loses one, not each time."""
        if before is not None and before.bridge is not None and unreachable(before.bridge) is None:
            return before
        if options.bridge == "off":
            return cls(None)
        address = default_bridge(options.bootstrap) if options.bridge == "auto" else options.bridge
        if address is None:
            return cls(None)
        why = bridge_cluster(address, options.bootstrap)
        if why is None:
            log.info("tasks read through the bridge at %s", address)
            return cls(address)
        known = before is not None and before.bridge is None
        log.log(
            logging.INFO if known else logging.WARNING,
            "no bridge at %s (%s): tasks read the brokers directly%s",
            address,
            why,
            _HOW if options.bridge == "auto" else "",
        )
        return cls(None)


class Pathfinder:
    """The way of each micro-batch of a stream. Where no bridge is, none is looked for again for a while: a host that
    drops what is not expected, or a stranger at that port, makes each look take seconds."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._route: Route | None = None
        self._looked_s = 0.0

    def route(self) -> Route:
        """The way for now."""
        now_s = self._clock()
        known = self._route
        if known is None or known.bridge is not None or now_s - self._looked_s >= _LOOK_AGAIN_S:
            self._route = known = Route.found(self._options, known)
            self._looked_s = now_s
        return known
