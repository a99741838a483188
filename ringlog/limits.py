"""Every bound of ringlog, named, in one place, with the relations that must hold between them."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# The device and what is written to it.
BLOCK_BYTES = 4 * KIB
"""Unit of a direct write: positions, lengths and memory are multiples of it."""
SECTOR_BYTES = 512
"""What a device writes whole: a torn block holds old or new content per sector."""

DISK_RING_ENTRIES = 1024
"""Calls that one submission hands to the kernel. More are submitted in several goes."""

# Batches (Kafka's record batch v2).
BATCH_HEADER_BYTES = 61
BATCH_BYTES_MAX = 32 * MIB
"""A batch larger than this is refused before anything of it is looked at."""
RECORDS_PER_BATCH_MAX = 4 * MIB
HEADERS_PER_RECORD_MAX = 1 * KIB
DECOMPRESSED_BYTES_MAX = 64 * MIB
"""Absolute cap on what one compressed batch may unfold to."""
LOOKED_INTO_BYTES_MAX = 16 * MIB
"""What a batch may unfold to in a topic that is compacted or has a codec of its own: a node must look into it, and
holds it three times over for a moment. All batches of one request together: DECOMPRESSED_BYTES_MAX."""

# Writes of one partition.
WRITE_BYTES_TARGET = 2 * MIB
"""A group stops growing here; one append adds at most as much again, or a single larger batch."""
WRITE_BYTES_MAX = WRITE_BYTES_TARGET + BATCH_BYTES_MAX + 2 * BLOCK_BYTES
"""No single write reaches further, so a whole batch found beyond a bad one by more than this proves
corruption and not a torn write."""
GROUP_BYTES_MIN = 64 * KIB
"""A node may be told to let groups stop growing earlier, but not below this."""
PENDING_BYTES_PER_PARTITION_MAX = 48 * MIB
"""Received and not yet written, per partition; past it an append is refused, retriably."""
ACKS_PER_PARTITION_MAX = 16 * KIB
"""Batches of one partition that wait to be acknowledged, at some 400 bytes each; past it a produce is refused,
retriably. While nothing is committed (most replicas are away) they stay, also those of clients that have left."""

# Segments and their indexes.
SEGMENT_BYTES_DEFAULT = 1 * GIB
SEGMENT_BYTES_MIN = 1 * MIB
SEGMENT_BYTES_MAX = 2 * GIB - 1
"""Positions in an offset index are signed 32 bit."""
SEGMENT_MS_DEFAULT = 7 * 24 * 3600 * 1000
RETENTION_MS_DEFAULT = 7 * 24 * 3600 * 1000
TOMBSTONE_MS_DEFAULT = 24 * 3600 * 1000
INDEX_BYTES_MAX = 10 * MIB
INDEX_INTERVAL_BYTES = 4 * KIB
COLD_PLACES_PER_LOG_MAX = 64
"""Readers of old records whose places in a log are remembered; one more begins where the index says."""
RELATIVE_OFFSET_MAX = 2**31 - 1
PREALLOCATE_BYTES_MIN = 64 * KIB
PREALLOCATE_BYTES_MAX = 64 * MIB
FILLED_BYTES_MAX = 1 * MIB
"""Space that is reserved in steps of at most this is filled with zeros."""

# Free space of the disk.
DISK_RESERVE_BYTES_MAX = 256 * MIB
DISK_RESERVE_SHARE = 20
"""Of the disk, one in so many bytes, or DISK_RESERVE_BYTES_MAX if that is less, is kept for the node's own work."""
DISK_FLOOR_BYTES_MAX = 8 * MIB
"""Below a quarter of that, or this if it is less, nothing is appended any more."""
RESERVE_FILE_BYTES_MAX = 32 * MIB
"""Preallocated for the node's own work on a disk that others have filled; half of the reserve, if that is less."""

# A shard.
TAIL_BYTES_PER_SHARD = 256 * MIB
"""Memory for append buffers and the recent tail that is served from them."""
INDEX_BYTES_PER_SHARD = 64 * MIB
"""Memory for the indexes of sealed segments; a segment of 1 GiB has up to 5 MiB of them."""
UNCHECKPOINTED_BYTES_PER_SHARD = 512 * MIB
"""What a shard may have to scan after a crash, over all its partitions."""
CHECKPOINT_BYTES = 128 * MIB
"""Bytes appended to the partitions of a shard between two checkpoints of their recovery points."""

# Compaction.
COMPACTION_MAP_BYTES = 16 * MIB
"""Of a shard: room for the keys of one pass, about half a million."""
COMPACTION_BYTES_PER_S = 64 * MIB
"""Read and written by the compaction of a shard."""

# Holes.
ROTTEN_SEGMENTS_KEPT = 4
"""Files of a partition, set aside as `*.bad`, whose records were fetched again from another replica."""

# Producers.
PRODUCER_BATCHES_KEPT = 5
PRODUCER_EXPIRY_MS = 24 * 3600 * 1000
PRODUCERS_PER_PARTITION_MAX = 10_000

# Rings.
RING_BYTES_MIN = 4 * KIB
RING_BYTES_MAX = 1 * GIB
"""Capacity of a ring; the kernel has the same bounds, and a test keeps them equal."""
RING_READ_MESSAGES_MAX = 4 * KIB
"""Messages handed out by one read or drain unless the caller says otherwise: bounds a cycle's Python work."""
RING_DRAIN_BYTES_MAX = 16 * MIB
"""Bytes walked by one drain unless the caller says otherwise: bounds a cycle's checking."""

# The wire.
FRAME_BYTES_MAX = 8 * MIB - 64
"""Largest frame that a node takes, header included: what a request ring takes as one message."""
CONTROL_BODY_BYTES_MAX = 512 * KIB
REPLY_BODY_BYTES_MAX = 64 * MIB
"""Of a control reply: the metadata of a large node."""
FETCH_BYTES_MAX = 16 * MIB
"""Data of one fetch reply; a single larger batch is served all the same."""
FETCH_WAIT_MS_MAX = 60_000
SPLIT_POINTS_MAX = 4096
"""Offsets in one answer about where ranges may be split, over all of its partitions."""
FETCH_PARTITIONS_MAX = 10_000
FETCH_SESSIONS_PER_SHARD_MAX = 4096
FETCH_SESSIONS_PER_CLIENT_MAX = 256
"""Of one client, in one shard."""
FETCH_SESSION_PARTITIONS_PER_SHARD_MAX = 1_000_000
"""Over all sessions of a shard, at some 300 bytes each."""
LENT_RANGES_MAX = 72 * KIB
"""Pieces of memory that one fetch reply is made of, about: the list of them goes through a ring, as one message."""
CLIENT_REQUESTS_MAX = 1024
"""Requests of one client that are not answered yet; past it they are refused, retriably."""
CLIENT_BYTES_IN_FLIGHT_MAX = 64 * MIB
"""Bytes of requests of one client that are not answered yet."""
CLIENT_REPLY_BYTES_MAX = 48 * MIB
"""Bytes sent to a client that it has not said to have received; past it its fetches are held back."""
NEAR_MEMORY_BYTES_MAX = 256 * MIB
"""Memory that a client on the same host may share with a network process."""
NEAR_MEMORIES_MAX = 256
"""Of all clients of a network process; others send their batches through their sockets."""
LANDING_MEMORY_BYTES = 96 * MIB
"""Memory that a consumer shares on a connection for the replies to its fetches; those that find no room there come
through the socket. Pages are taken when first used: about twice what a consumer fetches ahead."""
LANDING_SPARE_BYTES = 1 * MIB
"""What a place for a reply has beyond the bytes that were asked for: its head, and a batch that is served whole."""
NODE_BYTES_IN_FLIGHT_MAX = 512 * MIB
"""Bytes of requests of all clients of a network process that are not answered yet."""
CONNECTIONS_MAX = 8192
UNFINISHED_BYTES_MAX = CLIENT_BYTES_IN_FLIGHT_MAX + 2 * FRAME_BYTES_MAX
"""Bytes that a connection has received and that have not come out of the socket as messages; past it, it is cut."""
HELD_FETCHES_MAX = 16
"""Fetches of one client that wait until it has received more; past it they are refused, retriably."""
BAD_FRAME_REPLY_BYTES_MAX = 1 * MIB
"""A client that sends frames without a sound header, and does not read what it is told of them, is told no more."""
SESSION_IDLE_MS = 15 * 60_000
"""Of a fetch session, and of a client whose connection is not known."""

# Groups of consumers.
GROUP_ID_CHARS_MAX = 256
"""Of a group's name, a member's id and an instance's name."""
GROUP_MEMBERS_MAX = 1024
GROUPS_PER_PARTITION_MAX = 10_000
"""Groups that one partition of the offsets topic keeps."""
GROUP_TOPICS_MAX = 1024
"""Topics that one member may name."""
SESSION_TIMEOUT_MS_DEFAULT = 45_000
SESSION_TIMEOUT_MS_MIN = 1_000
SESSION_TIMEOUT_MS_MAX = 30 * 60_000
"""A member that was silent for its session timeout has left."""
HEARTBEAT_WAIT_MS_MAX = 3_000
"""How long a heartbeat waits for news at most."""
OFFSET_METADATA_CHARS_MAX = 4 * KIB
GROUP_REPLY_BYTES_MAX = 1 * MIB
"""What one answer about a group may take: a request for less gets through."""
OFFSETS_EXPIRY_MS = 7 * 24 * 3600 * 1000
"""Offsets of a group that has had no members, and committed nothing, for this long are forgotten."""
OFFSETS_PARTITIONS = 50
"""Partitions of the offsets topic. Never changes: a group's place is its name's hash modulo this."""

# The Spark sink.
SINK_GATHER_BYTES = 4 * MIB
"""Rows of a task are gathered to this much before they are shared out over partitions."""
SINK_MARKS_MAX = 1000
"""Partitions whose offsets tell that an epoch is committed: one would do, and all fit into one request."""

# The Spark bridge.
BRIDGE_READERS_MAX = 64
"""Consumers of a bridge at a time; each fetches ahead by a few megabytes."""
BRIDGE_ASKS_PER_CLIENT_MAX = 64
"""Questions of one client that are not answered yet. A task has one."""
BRIDGE_ASKS_MAX = 4096
"""Questions of all clients that are not answered yet; past it they are refused, and tasks read the brokers."""

# Replication.
REPLICA_FETCH_BYTES = 4 * MIB
"""Data of one answer to a follower; a single larger batch is sent all the same."""
REPLICA_PARTITION_BYTES = 1 * MIB
"""Of it, what one partition may take however many others wait; with few of them it may take its share of the whole."""
REPLICA_FETCH_WAIT_MS = 500
"""How long a follower's fetch waits for news."""
REPLICA_REPLY_MS_MAX = 2_000
"""Beyond that wait: a follower that has no answer by then begins a new conversation."""
REPLICA_FETCHES_MAX = 2
"""Fetches of one conversation on their way: one that waits, and one that overtakes it with news."""
REPLICA_LULL_BYTES = 64 * KIB
"""An answer with less says that the leader has no more: the next fetch waits until that is flushed, and reports it.
After a larger one the next data should be under way while the last is being flushed."""
REPLICA_LULL_MS = 20
"""How long that fetch waits for a flush."""
REPLICA_MARK_MS = 20
"""A watermark that moved is told to followers after so long, unless data took it along: not at once, or every commit of
a busy partition would cost a message more."""
REPLICA_BACKOFF_MS = 50
"""After an answer that could not be used."""
REPLICA_MEND_BYTES = 4 * KIB
"""A follower whose log has a hole asks for so much: a batch tells whether its log may be cut, and is not kept. Then it
asks for all."""
REPLICA_MEND_BACKOFF_MS = 1_000
"""As long as it may not be cut, the pauses grow up to this: that may take until another replica is there."""
UNREADABLE_MS = 1_000
"""A replica's segment whose reads the device still refuses after so long is taken for rotten, where others have it."""
UNREADABLE_WITHIN_MS = 60_000
"""Errors that are further apart are not one."""
REPLICA_LAG_MS_DEFAULT = 10_000
"""A replica that did not hold all that there was for this long is not in sync any more."""
REPLICA_LAG_MS_MIN = 1_000
"""Below it a replica that is well, and waits for the answer to a fetch, would be taken for one that lags."""
REPLICA_LAG_MS_MAX = 3_600_000
THROTTLE_PIECE_BYTES_MIN = 16 * KIB
"""A replica that is moved under a throttle asks for no less at a time; the pauses between are longer instead."""
MOVE_BYTES_PER_S_MIN = 64 * KIB
"""A move that is throttled below this would hardly ever end."""
REPLICA_HEAD_BYTES = 1 * KIB
"""What goes before the largest batch that a topic may take when it is sent to a follower, alone in its frame."""
REPLICA_PLACE_BYTES = REPLICA_FETCH_BYTES + 256 * KIB
"""For an answer with its head, in memory that nodes of one host share; a larger one goes through the socket."""
REPLICA_PLACES = 8
"""In the memory that a node shares with another one: for fetches of so many conversations at a time. Pages are taken
when first used."""
REPLICA_LANDED_BYTES_MIN = 64 * KIB
"""Smaller answers cost the same whichever way they take."""
REPLICA_OVERFLOW_BYTES_MAX = 64 * MIB
"""Frames of other nodes that wait for room in a shard's ring; past it they are refused, and asked for again."""
PEER_CONNECTIONS_MAX = 1024
"""Connections that other nodes may have open to this one."""
HELLO_AGAIN_MS = 100
"""Between two attempts to be let in by another node."""
NODE_ID_MAX = 2**31 - 1

# A node.
SPIN_US_MAX = 10_000
"""How long a process may go on looking for work before it sleeps."""
TOPICS_MAX = 10_000
PARTITIONS_MAX = 50_000
PARTITIONS_PER_TOPIC_MAX = 10_000
TOPIC_NAME_CHARS_MAX = 200
SHARDS_MAX = 256
NETS_MAX = 16
REQUEST_RING_BYTES = 32 * MIB
REPLY_RING_BYTES = 8 * MIB
CONTROL_RING_BYTES = 4 * MIB
DELTA_RECORDS_MAX = 1000
"""Metadata records in one frame; each is far below a kilobyte."""

NODE_ID_MAX = 2**31 - 1
CLUSTER_NODES_MAX = 63
"""Nodes that are named in one `--cluster`: each of them votes."""
REPLICATION_FACTOR_DEFAULT = 3
REPLICATION_FACTOR_MAX = 64

# The quorum of controllers.
QUORUM_APPEND_BYTES_MAX = 1 * MIB
"""Data of the entries in one message; a single larger entry is sent all the same."""
QUORUM_FILE_BYTES_MAX = 16 * MIB
"""A voter's file that is longer than this is replaced by a snapshot."""
CONTROLLER_ANSWER_MS_MAX = 5_000
"""How long a node waits for the answer of the active controller."""
CONTROLLER_PATIENCE_MS = 10_000
"""How long a request to the controller waits for one to be elected, and for nodes that a new topic needs."""
CONTROLLER_REQUESTS_MAX = 1024
"""Requests of a node's clients that wait for the controller; more are refused, retriably."""
BROKER_SESSION_MS = 1_000
"""A node that is silent for this long is fenced."""
BROKER_LOST_MS = 400
"""A node whose connection broke, and that is not heard of for this long, is fenced."""
BROKER_ABSENT_MS = 5_000
"""New topics do not wait for a node that is silent for so long: it gets replicas, and makes them when it is back."""
BROKER_BEAT_MS = 200
"""How often a node says that it lives."""
LOAD_REPORT_MS = 1_000
"""How often a node tells what goes in and out of the partitions that it leads."""
LOAD_PARTITIONS_MAX = 500
"""Partitions of one such report: the busiest."""
PEER_MESSAGES_MAX = 1024
"""Messages to one other controller, or from all of them, that wait; more are dropped, and said again."""

assert FETCH_BYTES_MAX + LANDING_SPARE_BYTES < LANDING_MEMORY_BYTES <= NEAR_MEMORY_BYTES_MAX
assert FRAME_BYTES_MAX <= REQUEST_RING_BYTES // 4 - 8
assert CONTROL_BODY_BYTES_MAX + DELTA_RECORDS_MAX * KIB // 2 <= CONTROL_RING_BYTES // 4
assert FETCH_PARTITIONS_MAX * 64 + (LENT_RANGES_MAX + FETCH_PARTITIONS_MAX) * 16 < REPLY_RING_BYTES // 4
assert (
    REPLICA_FETCH_BYTES // BATCH_HEADER_BYTES < LENT_RANGES_MAX
)  # so many batches are so many pieces at most
assert GROUP_REPLY_BYTES_MAX < REPLY_RING_BYTES // 4 - 64
assert REPLICA_PARTITION_BYTES <= REPLICA_FETCH_BYTES
assert REPLICA_FETCH_BYTES + FETCH_PARTITIONS_MAX * 64 < FRAME_BYTES_MAX
assert REPLICA_PLACES * REPLICA_PLACE_BYTES + BLOCK_BYTES <= NEAR_MEMORY_BYTES_MAX
assert NODE_ID_MAX < 2**32 and SHARDS_MAX < 2**32
assert 2 * (REPLICA_FETCH_WAIT_MS + REPLICA_REPLY_MS_MAX) < REPLICA_LAG_MS_DEFAULT
assert 2 * REPLICA_FETCH_WAIT_MS <= REPLICA_LAG_MS_MIN < REPLICA_LAG_MS_DEFAULT < REPLICA_LAG_MS_MAX
assert 4 * CLIENT_REQUESTS_MAX <= ACKS_PER_PARTITION_MAX  # no client alone keeps the others out
assert 3 * HEARTBEAT_WAIT_MS_MAX < SESSION_TIMEOUT_MS_DEFAULT
assert BROKER_SESSION_MS < BROKER_ABSENT_MS < CONTROLLER_PATIENCE_MS
assert BROKER_BEAT_MS < BROKER_LOST_MS and 4 * BROKER_BEAT_MS < BROKER_SESSION_MS < CONTROLLER_ANSWER_MS_MAX
assert GROUP_BYTES_MIN <= WRITE_BYTES_TARGET <= WRITE_BYTES_MAX
assert WRITE_BYTES_MAX < PENDING_BYTES_PER_PARTITION_MAX < TAIL_BYTES_PER_SHARD
assert 3 * CHECKPOINT_BYTES < UNCHECKPOINTED_BYTES_PER_SHARD
assert BATCH_BYTES_MAX < SEGMENT_BYTES_MAX
assert BLOCK_BYTES % SECTOR_BYTES == 0
