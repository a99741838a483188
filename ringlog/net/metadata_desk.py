"""Answers questions about topics out of a network process's image of the metadata; has missing topics created."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringlog.controller.commands import broker_metadata, topic_metadata
from ringlog.controller.image import MetadataImage
from ringlog.errors import InvalidRequest
from ringlog.limits import FRAME_BYTES_MAX, TOPIC_NAME_CHARS_MAX
from ringlog.net.framing import Api, Flag, Header, pack_header
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.net.messages import (
    CreateTopicRequest,
    ErrorReply,
    MetadataReply,
    MetadataRequest,
    TopicMetadata,
    decode_body,
    encode_body,
)
from ringlog.net.peers import Peer, Peers, PendingRequest
from ringlog.net.wire_errors import error_reply
from ringlog.ring.link import LinkEnd

CREATED_AT_ONCE_MAX = 100
"""Topics that one question may have created."""


class NodeFacts:
    """What metadata replies say of the node itself."""

    def __init__(
        self, endpoints: list[str], host_id: str, *, auto_create: bool, topic_defaults: dict[str, str]
    ) -> None:
        self.endpoints = endpoints
        self.host_id = host_id
        self.auto_create = auto_create
        self.topic_defaults = topic_defaults


class Answer(Protocol):
    """Sends a client the body of an answer."""

    def __call__(self, peer: Peer, api_key: int, correlation: int, flags: int, body: bytes) -> None: ...


class MetadataDesk:
    """All questions about topics that came to one network process."""

    def __init__(
        self,
        facts: NodeFacts,
        image: MetadataImage,
        peers: Peers,
        *,
        controller: int,
        find_controller: Callable[[], LinkEnd],
        answer: Answer,
    ) -> None:
        """`find_controller`: the way to the controller; raises while there is none."""
        self._facts = facts
        self._image = image
        self._peers = peers
        self._controller = controller
        self._find_controller = find_controller
        self._answer = answer
        self._creating: dict[int, _TopicsToCreate] = {}
        self._announced: dict[int, str] = {}
        """Topics that the controller says are there, and of which no delta has told yet, by those numbers."""
        self._next_number = 1

    def take(self, peer: Peer, header: Header, body: memoryview, due_ms: int, now_us: int) -> None:
        """A question of a client, answered now or when the controller has created what is missing."""
        request = decode_body(body, MetadataRequest)
        missing = [name for name in dict.fromkeys(request.topics or ()) if name not in self._image.topics]
        if not self._facts.auto_create:
            missing = [
                name for name in missing if name == OFFSETS_TOPIC
            ]  # the node's own is made in any case
        if missing and request.create:
            self._create(peer, header, request, missing[:CREATED_AT_ONCE_MAX], due_ms, now_us)
            return
        self._reply(peer, header, request, {})

    def _create(
        self, peer: Peer, header: Header, request: MetadataRequest, names: list[str], due_ms: int, now_us: int
    ) -> None:
        """Have the controller create topics; the client is answered when it has answered for all of them."""
        end = self._find_controller()
        pending = PendingRequest(self._controller, header.api_key, 0, now_us)
        self._peers.admit(peer, header.correlation, pending)
        creation = _TopicsToCreate(peer.session, header, request)
        for name in dict.fromkeys(names):
            if len(name) > TOPIC_NAME_CHARS_MAX:  # it might not even fit the ring
                creation.failures[name] = error_reply(InvalidRequest("the name of the topic is too long"))
                continue
            number, self._next_number = self._next_number, self._next_number + 1
            creation.waiting[number] = name
            self._creating[number] = creation
            body = encode_body(CreateTopicRequest(name))
            # Session 0: the answer comes back to us.
            asked = pack_header(
                Api.CREATE_TOPIC, correlation=number, body_bytes=len(body), deadline_ms=due_ms
            )
            end.send(asked + body)
        if not creation.waiting:
            self._reply_created(creation)

    def created(self, number: int, flags: int, body: memoryview) -> None:
        """The controller's answer to a topic that we asked it to create for a client."""
        creation = self._creating.pop(number, None)
        if creation is None:
            return
        name = creation.waiting.pop(number)
        if flags & Flag.ERROR:
            error = decode_body(body, ErrorReply)
            if error.code != "TOPIC_EXISTS":
                creation.failures[name] = error
            elif name not in self._image.topics:
                # Another client's request makes it, and we have not heard of it: the next delta will tell.
                creation.waiting[number] = self._announced[number] = name
                self._creating[number] = creation
                return
        if not creation.waiting:
            self._reply_created(creation)

    def image_changed(self) -> None:
        """A delta came: topics that were announced may be there now."""
        for number in [number for number, name in self._announced.items() if name in self._image.topics]:
            del self._announced[number]
            self.created(number, 0, memoryview(b""))

    def forget(self) -> None:
        """The controller process was replaced: whoever waited for the old one is refused by others."""
        self._creating.clear()
        self._announced.clear()

    def _reply_created(self, creation: _TopicsToCreate) -> None:
        peer = self._peers.by_session.get(creation.session)
        if peer is None or self._peers.settle(peer, creation.header.correlation) is None:
            return
        self._reply(peer, creation.header, creation.request, creation.failures)

    def _reply(
        self, peer: Peer, header: Header, request: MetadataRequest, failures: dict[str, ErrorReply]
    ) -> None:
        image = self._image
        names = list(image.topics if request.topics is None else dict.fromkeys(request.topics))
        topics = []
        for name in names:
            topic = image.topics.get(name)
            if topic is not None:
                topics.append(topic_metadata(image, topic))
            else:
                why = failures[name].code if name in failures else "UNKNOWN_TOPIC"
                topics.append(TopicMetadata(name, why, -1, [], {}))
        facts = self._facts
        reply = MetadataReply(
            image.cluster_id,
            image.node_id,
            image.version,
            facts.endpoints,
            facts.host_id,
            FRAME_BYTES_MAX,
            topics,
            facts.topic_defaults,
            broker_metadata(image),
            image.controller_id,
            list(image.unheard),
        )
        self._answer(peer, header.api_key, header.correlation, Flag.REPLY, encode_body(reply))


class _TopicsToCreate:
    """A metadata request that waits until topics that it names are created."""

    def __init__(self, session: int, header: Header, request: MetadataRequest) -> None:
        self.session = session
        self.header = header
        self.request = request
        self.waiting: dict[int, str] = {}
        """Names of topics, by the number of the request to the controller."""
        self.failures: dict[str, ErrorReply] = {}
