"""The connections of one client: its home, where everything goes that any node can answer, and one for each node that
it needs besides. Which of them a request takes, and what becomes of it when a node goes.

Requests of one partition never travel on two connections at once: what was sent on one has failed before another is
used. So their order holds also when leaders move.
"""

from __future__ import annotations

from collections.abc import Callable

from ringlog.client.cluster_view import NO_LEADER, ClusterView
from ringlog.client.link import Link, LinkState
from ringlog.client.near_memory import Shares
from ringlog.errors import NotLeader, RinglogError, StaleMetadata
from ringlog.net.dealer import Sockets
from ringlog.net.session import ANY_NODE, Request

_PATIENCE_S = 1.0
"""How long a node may be silent before others are asked whether it still leads."""
_ASK_AGAIN_S = 0.2
"""How soon others are asked again while it stays silent, at first."""
_CALM_S = 10.0
"""When no leader has moved for so long, a node that was suspected and answers was only slow."""
_PATIENCE_S_MAX = 8.0
"""Nodes that were only slow are given more time; ZeroMQ's heartbeats end those that stand still for longer."""
_SHUNNED_S = 5.0
"""How long a node that was left is not asked again while another may be found."""


class Links:
    """All connections. Made and used on the I/O thread."""

    def __init__(
        self,
        sockets: Sockets,
        view: ClusterView,
        now_s: float,
        on_silent: Callable[[], None],
        near: Shares | None = None,
    ) -> None:
        """`on_silent`: a node does not answer; look who leads its partitions. `near`: what is shared with nodes
        on this host."""
        self._near = near
        self._on_silent = on_silent
        self._patience_s = _PATIENCE_S
        self._ask_at_s = 0.0
        """Others are not asked again before this time."""
        self._ask_pause_s = _ASK_AGAIN_S
        self._sockets = sockets
        self._view = view
        self._moves_seen = view.moves
        self._moved_s = now_s
        self._by_node: dict[int, Link] = {}
        self._refused: list[tuple[Request, RinglogError]] = []
        """Requests that no node can take, to be told so at the next step: their owners act on it in the same pass."""
        self.home = Link(sockets, view, view.seeds(), now_s, near=near)
        self._all = [self.home]

    def take(self, request: Request, now_s: float) -> None:
        """Queue a request at the connection to the node that must get it."""
        node = request.node
        if node == ANY_NODE:
            node = self._view.routes.get(request.partition, ANY_NODE)
            if node == ANY_NODE:
                self.home.outbox.append(request)
                return
            request.node = node
        elif self._is_misled(request):
            # Its owner has not heard yet what is known here: the node that it names may be silent, and never answer.
            moved = NotLeader(f"node {node} leads the partition no longer. Retry with the new leader")
            self._refused.append((request, moved))
            return
        link = self._by_node.get(node)
        if link is None or link.state is LinkState.ENDED:
            link = self.home if self.home.node == node else self._open(node, now_s)
        if link is not None:
            link.outbox.append(request)
        elif node == NO_LEADER:
            self._refused.append((request, NotLeader("no node leads the partition now. Retry after a pause")))
        else:
            why = StaleMetadata(f"node {node} is not known here. Fetch metadata, then retry")
            self._refused.append((request, why))

    def step(self, now_s: float) -> bool:
        """Take what came on all connections, and fail what must. True: there may be more to take."""
        more = False
        if self._refused:
            refused, self._refused = self._refused, []
            for request, why in refused:
                request.on_error(why)
        for link in self._all:
            more |= link.step(now_s)
        if self._moves_seen != self._view.moves:
            self._recall(now_s)
        if self._view.brokers:
            self._tidy(now_s)
            self._listen(now_s)
        return more

    def flush(self, now_s: float) -> bool:
        """Send what may leave. True: there are requests that no node can take, and the next step tells their owners."""
        for link in self._all:
            if link.outbox:
                link.flush(now_s)
        return bool(self._refused)

    def next_s(self) -> float | None:
        """When to look again though nothing comes."""
        soonest: float | None = None
        for link in self._all:
            at_s = link.next_s()
            if at_s is not None and (soonest is None or at_s < soonest):
                soonest = at_s
        if self._view.brokers:
            for link in self._all:
                since_s = link.silent_since_s()
                if since_s is not None:
                    at_s = max(since_s + self._patience_s, self._ask_at_s)
                    soonest = at_s if soonest is None else min(soonest, at_s)
        return soonest

    def leave_home(self, node: int, now_s: float, to: Link | None = None) -> None:
        """The node at home is not to be trusted with questions that any node can answer: ask another one."""
        old = self.home
        if old.node != node or node == ANY_NODE:
            return
        moved = [request for request in old.outbox if request.node == ANY_NODE]
        for request in moved:
            old.outbox.remove(request)
        old.shunned_until_s = now_s + _SHUNNED_S
        self._settle(to or self._other_ready(now_s) or self._seeker(node, now_s))
        self.home.outbox.extend(moved)
        old.seeks = False
        other = self._by_node.get(node)
        if other is None or other.state is LinkState.ENDED:
            self._by_node[node] = old
        else:
            old.is_double = True  # what was asked on it is answered on it, and then it is closed

    def end(self) -> list[Request]:
        """Close all, and hand back what was not answered."""
        left = [request for request, _ in self._refused]
        left += [request for link in self._all for request in link.abandon()]
        for link in self._all:
            link.close()
        return left

    # -- nodes that come and go ------------------------------------------------------------------------------

    def _open(self, node: int, now_s: float) -> Link | None:
        endpoints = self._view.endpoints_of(node)
        if not endpoints:
            return None
        link = self._by_node[node] = Link(self._sockets, self._view, endpoints, now_s, node, self._near)
        self._all.append(link)
        return link

    def _listen(self, now_s: float) -> None:
        """A node that is silent may have been replaced: ask another one who leads, until it speaks. What any node could
        answer is asked elsewhere."""
        silent: list[Link] = []
        for link in list(self._all):
            since_s = link.silent_since_s()
            if since_s is None or now_s < since_s + self._patience_s:
                if link.suspected and now_s >= self._moved_s + _CALM_S:
                    # It was only slow: next time it has longer.
                    self._patience_s = min(2 * self._patience_s, _PATIENCE_S_MAX)
                link.suspected = False
                continue
            silent.append(link)
            if not link.suspected:
                link.suspected = True
                self.leave_home(link.node, now_s)
                link.recall_repeatable()
        if not silent:
            self._ask_pause_s = _ASK_AGAIN_S
        elif now_s >= self._ask_at_s:
            self._ask_at_s = now_s + self._ask_pause_s
            self._ask_pause_s = min(1.5 * self._ask_pause_s, _PATIENCE_S_MAX)
            other = self._last_heard()
            if other is not None and any(link.node == self.home.node for link in silent):
                # Who sought any node may have come back to a silent one: cut off, it tells what it knew.
                self.leave_home(self.home.node, now_s, other)
            self._on_silent()

    def _recall(self, now_s: float) -> None:
        """Leaders moved: fail what waits for the old ones, which may be silent for long."""
        self._moves_seen, self._moved_s, self._patience_s = self._view.moves, now_s, _PATIENCE_S
        for link in list(self._all):
            link.recall(self._is_misled)

    def _is_misled(self, request: Request) -> bool:
        """Whether another node leads its partition than the one that it is for."""
        return request.to_leader and self._view.routes.get(request.partition, request.node) != request.node

    def _tidy(self, now_s: float) -> None:
        """Forget connections that ended, or are not needed; let one that works be home when home is lost."""
        for link in self._all:
            if link.is_double and link.is_empty:
                link.close()
        if any(link.state is LinkState.ENDED for link in self._all):
            self._all = [link for link in self._all if link.state is not LinkState.ENDED]
            self._by_node = {
                n: link for n, link in self._by_node.items() if link.state is not LinkState.ENDED
            }
        if not self.home.ready:
            other = self._other_ready(now_s)
            if other is not None:
                old = self.home
                other.outbox.extend(old.outbox)
                self._settle(other)
                old.close()
                self._all.remove(old)

    def _other_ready(self, now_s: float) -> Link | None:
        """A connection that may be home instead; one that owes no answer, if there is such a one."""
        others = [link for link in self._others() if now_s >= link.shunned_until_s]
        return min(others, key=lambda link: link.suspected, default=None)

    def _last_heard(self) -> Link | None:
        """Of the other connections that owe no answer, the one that answered last."""
        others = [link for link in self._others() if not link.suspected]
        return max(others, key=lambda link: link.heard_s, default=None)

    def _others(self) -> list[Link]:
        return [link for link in self._all if link.ready and link is not self.home and not link.is_double]

    def _seeker(self, but: int, now_s: float) -> Link:
        link = Link(self._sockets, self._view, self._view.seeds(but), now_s, near=self._near)
        self._all.append(link)
        return link

    def _settle(self, link: Link) -> None:
        self.home = link
        link.seeks = True
        if self._by_node.get(link.node) is link:
            del self._by_node[link.node]
