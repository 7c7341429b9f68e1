"""What can happen in a run: one class a kind, one envelope round them all (schema v1).

An `Event` is the envelope; its `body` says what happened. Every body is frozen, tagged with its
`type`, and flat: strings, integers, booleans and tuples of them, so that the NDJSON line, the flat
row, the Spark schema and the documentation page are projections of these classes and of nothing
else. A plugin adds kinds of its own, tagged `plugin.name`, through the hook
`fencepost_event_kinds`.

Rules of the schema:

* A node writes an event before the effect it describes (before the answer leaves, before the record
  is served), one write each. `node_seq` counts from 0 without a gap within one process.
* `at_ns` is the host's CLOCK_MONOTONIC, which no fault touches. What the node believed the time to
  be is a field of the body, named `*_ms`, and is never compared with `at_ns`.
* `cause` names one earlier event or one request; nearness in time is never a cause.
* Process names are `<slot>#<n>` (`broker-2#3`, `broker-2-twin#1`), clients `clients/<name>#<n>`,
  and `harness` for the harness itself. A request is named by the process that sent it and that
  process's correlation counter; on the wire these are client_id and correlation_id.
* Topics and partitions appear as `topic` and `partition`; an offset of -1 means "none".
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import Struct

SCHEMA_VERSION = 1


class Cause(Struct, frozen=True, array_like=True):
    """An event (`request` false: seq is a node_seq) or a request (true: a correlation id)."""

    process: str
    seq: int
    request: bool = False

    def __str__(self) -> str:
        return f"{self.process}{':' if self.request else '@'}{self.seq}"


# ------------------------------------------------------------------------------ processes and run


class RunStarted(Struct, frozen=True, tag="run.started"):
    """The harness began; its first event."""

    system: str
    runtime: str
    seed: int


class PhaseStarted(Struct, frozen=True, tag="run.phase"):
    """The run entered a phase: start, load, strike, heal, drain, read, end."""

    phase: str


class RunEnded(Struct, frozen=True, tag="run.ended"):
    """The harness finished in an orderly way; its last event."""

    completed: bool


class ProcessSpawned(Struct, frozen=True, tag="process.spawned"):
    """The harness started a process. `role` is controller, broker or client."""

    started: str
    slot: str
    role: str
    node_id: int
    pid: int


class ProcessExited(Struct, frozen=True, tag="process.exited"):
    """The harness saw a process end. `signal` is 0 for an exit; `expected`: we caused it."""

    ended: str
    exit_code: int
    signal: int
    expected: bool


class NodeStarted(Struct, frozen=True, tag="node.started"):
    """A node's first event: who it is. `incarnation` is the process's own uuid."""

    role: str
    node_id: int
    incarnation: str
    metadata_offset: int


class RecoveryStarted(Struct, frozen=True, tag="node.recovery_started"):
    """A starting node begins to recover the logs on its disk."""

    node_id: int


class RecoveryEnded(Struct, frozen=True, tag="node.recovery_ended"):
    """A starting node has recovered the logs on its disk: how many, with how many batches."""

    node_id: int
    logs: int
    batches: int


class NodeStopped(Struct, frozen=True, tag="node.stopped"):
    """A node's last event, when it ends by itself; without it its last events may be lost."""

    reason: str


class Stalled(Struct, frozen=True, tag="process.stalled"):
    """The process noticed that it did not run for `stalled_ns` (its loop woke so much too late)."""

    stalled_ns: int


class EvidenceMissed(Struct, frozen=True, tag="run.evidence_missed"):
    """Some of what happened will never be told: the history is not complete. `what` is a sentence.

    Written by a client that tells of the cluster's state and could not see all of it.
    """

    what: str


class ConnectionClosed(Struct, frozen=True, tag="node.connection_closed"):
    """A node closed a connection for a reason of its own (malformed bytes, an unknown request)."""

    listener: str
    peer: str
    reason: str


# --------------------------------------------------------------------------------- faults, tests


class FaultStruck(Struct, frozen=True, tag="fault.struck"):
    """A fault was applied. `receipt` is true only if `evidence`, a measurement, shows it.

    Written once it was measured; `began_at_ns` is when applying it began (0: not known).
    """

    fault_id: str
    fault: str
    targets: tuple[str, ...]
    receipt: bool
    evidence: str
    began_at_ns: int = 0


class FaultHealed(Struct, frozen=True, tag="fault.healed"):
    """A fault was undone; `receipt` says whether that was measured too, `began_at_ns` as above."""

    fault_id: str
    receipt: bool
    evidence: str
    began_at_ns: int = 0


class TestStarted(Struct, frozen=True, tag="test.started"):
    """A pytest test began; `clauses` are those it is marked with."""

    __test__: ClassVar[bool] = False
    nodeid: str
    clauses: tuple[str, ...]


class TestEnded(Struct, frozen=True, tag="test.ended"):
    """A pytest test ended: passed, failed or error."""

    __test__: ClassVar[bool] = False
    nodeid: str
    outcome: str


class PromiseWitnessed(Struct, frozen=True, tag="test.promise_witnessed"):
    """A test looked at one promise itself: a format, a default, a surface that no event shows.

    `witness` is by whose word: client, peer or self. `evidence` is what was seen.
    """

    clause: str
    held: bool
    evidence: str
    witness: str


class ClusterRecovered(Struct, frozen=True, tag="cluster.recovered"):
    """After healing: did every broker become active, every partition led, every ISR full in time?

    `missing` lists in words what was not, when `recovered` is false.
    """

    recovered: bool
    took_ms: int
    bound_ms: int
    missing: tuple[str, ...]


# -------------------------------------------------------------------- the quorum (metadata log)


class ElectionStarted(Struct, frozen=True, tag="quorum.election_started"):
    """A voter became candidate of `epoch`; it has stored the vote for itself."""

    epoch: int
    log_end: int
    last_epoch: int


class VoteAnswered(Struct, frozen=True, tag="quorum.vote_answered"):
    """A voter answered a Vote request; a granted vote is on its disk before this event.

    `reason` is granted, already_voted, log_behind, old_epoch or has_leader. `log_end`, `last_epoch`
    are the voter's own; `candidate_*` the candidate's.
    """

    epoch: int
    candidate: int
    granted: bool
    reason: str
    log_end: int
    last_epoch: int
    candidate_log_end: int
    candidate_last_epoch: int


class ControllerElected(Struct, frozen=True, tag="quorum.controller_elected"):
    """This voter won `epoch` and is the active controller; `log_end`, `last_epoch` as it starts."""

    epoch: int
    log_end: int
    last_epoch: int


class ControllerResigned(Struct, frozen=True, tag="quorum.controller_resigned"):
    """This voter stopped being the active controller of `epoch`.

    `reason` is no_majority, higher_epoch, shutdown, or removed (from the voters).
    """

    epoch: int
    reason: str


class ControllerFollowed(Struct, frozen=True, tag="quorum.controller_followed"):
    """This node learned that `leader` is the active controller of `epoch`."""

    epoch: int
    leader: int


class QuorumLearned(Struct, frozen=True, tag="quorum.learned"):
    """This node takes these for the quorum's voters; `endpoints` are theirs, in the same order.

    A broker learns them from answers; `bootstrap` are the addresses that it was configured with. A
    controller, which has none, has them from its log, or, as long as that names none, from its
    configuration.
    """

    voters: tuple[int, ...]
    endpoints: tuple[str, ...]
    bootstrap: tuple[str, ...]


class MetadataCommitted(Struct, frozen=True, tag="metadata.committed"):
    """This node's metadata high watermark passed the record at `offset`, and it replayed it.

    `epoch` is the record's own; `kind` its KIP-631 name, `version` the one it is written in;
    `digest` a checksum of what it says.
    """

    offset: int
    epoch: int
    kind: str
    digest: str
    version: int = 0


class MetadataApplied(Struct, frozen=True, tag="metadata.applied"):
    """This node works by the committed metadata up to and including `offset`, of `epoch`.

    What a node tells that does not tell each record as `metadata.committed` does.
    """

    offset: int
    epoch: int


class MetadataDigest(Struct, frozen=True, tag="metadata.digest"):
    """A checksum of this node's whole metadata, with all below `offset` replayed.

    `entities` is how many records it takes to describe it. Written at the same offsets by every
    node, and where a snapshot begins.
    """

    offset: int
    entities: int
    digest: str


class FeatureFinalized(Struct, frozen=True, tag="metadata.feature"):
    """This node replayed a record that enables `level` of a feature (KIP-584)."""

    offset: int
    feature: str
    level: int


class SnapshotStarted(Struct, frozen=True, tag="snapshot.started"):
    """This node begins a snapshot of its state with all below `offset` replayed.

    `controller_epoch` is that of the active controller that asked for it (-1: its own decision).
    """

    offset: int
    entities: int
    controller_epoch: int


class SnapshotStored(Struct, frozen=True, tag="snapshot.stored"):
    """This node is about to store a snapshot.

    `records` is how many it holds, `entities` how many the state needs that it describes, `digest`
    that state's checksum, read back from the snapshot; `level` the metadata.format it is written
    by, `epoch` that of the last record below `offset`.
    """

    offset: int
    epoch: int
    records: int
    entities: int
    level: int
    digest: str


class SnapshotLoaded(Struct, frozen=True, tag="snapshot.loaded"):
    """This node rebuilt its state from a snapshot, its own or a leader's; `digest` is the state's.

    What it had replayed before no longer counts; it goes on with the log at `offset`.
    """

    offset: int
    epoch: int
    digest: str


class SnapshotKnown(Struct, frozen=True, tag="controller.snapshot_known"):
    """The active controller learned that `controller`'s last snapshot is at `offset` (-1: none)."""

    controller: int
    offset: int
    controller_epoch: int


class SnapshotAsked(Struct, frozen=True, tag="controller.snapshot_asked"):
    """The active controller tells `controller` (perhaps itself) to take a snapshot.

    `last_offset` is that of the one it has, `committed` the end of what is committed. `waited`: it
    was due before, while another's was under way. One that is not heard of for `patience_ms` may be
    given up.
    """

    controller: int
    last_offset: int
    committed: int
    controller_epoch: int
    waited: bool
    patience_ms: int


class MetricsReported(Struct, frozen=True, tag="metrics.reported"):
    """This node's metrics as it exposes them; KIP-631's, in its order, and what they are made of.

    Written when something has changed, once a second at most, and at once when the node finds that
    it is behind, or is no longer. `last_stable` is the metadata's last stable offset as far as this
    node has been told it, `replayed` the first offset it has not replayed, both exclusive ends;
    the lags are in records, the rates per second of the last whole `over_ms`, in which the commits
    took `commit_latency_ms` on average (0: none were this node's). `commits` and `requests` are
    this process's, from its start to the end of that time. A broker has a MetadataLag only.
    """

    role: str
    node_id: int
    metadata_lag: int = 0
    commit_latency_ms: float = 0.0
    commit_rate: float = 0.0
    snapshot_lag: int = 0
    requests_rate: float = 0.0
    last_stable: int = 0
    replayed: int = 0
    commits: int = 0
    requests: int = 0
    over_ms: float = 0.0


class MetadataTruncated(Struct, frozen=True, tag="metadata.truncated"):
    """This node dropped its metadata records from `from_offset` up to (not including) `log_end`."""

    from_offset: int
    log_end: int
    high_watermark: int
    epoch: int


class StateReverted(Struct, frozen=True, tag="metadata.state_reverted"):
    """A former active controller rebuilt its state; `offset` is the first offset not in it."""

    offset: int
    high_watermark: int
    epoch: int


class BrokerCommitted(Struct, frozen=True, tag="metadata.broker"):
    """This node replayed a committed BrokerRecord (follows its `metadata.committed`).

    `fenced` and `incarnation` come from the record's tagged fields. `role` says which node of the
    process replayed it, where one is both broker and controller.
    """

    offset: int
    broker_id: int
    broker_epoch: int
    fenced: bool
    incarnation: str
    role: str = ""


class TopicCommitted(Struct, frozen=True, tag="metadata.topic"):
    """This node replayed a committed TopicRecord or DeleteTopicRecord; `role` as for a broker's."""

    offset: int
    topic: str
    topic_id: str
    deleted: bool
    role: str = ""


class PartitionCommitted(Struct, frozen=True, tag="metadata.partition"):
    """This node replayed a committed PartitionRecord or IsrChangeRecord: the partition as it is.

    During a reassignment `replicas` holds the new ones, of which `adding` were none before, and
    then those in `removing`. `role` is as in `metadata.broker`. `eligible` are replicas outside
    the ISR that may lead: they hold all that is committed, or are the last that did (KIP-966).
    """

    offset: int
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    role: str = ""
    eligible: tuple[int, ...] = ()


class TopicMarked(Struct, frozen=True, tag="metadata.topic_marked"):
    """This node replayed a committed TopicRecord that marks the topic as being deleted."""

    offset: int
    topic: str
    topic_id: str


class BrokerDeleted(Struct, frozen=True, tag="metadata.broker_deleted"):
    """This node replayed a committed DeleteBrokerRecord."""

    offset: int
    broker_id: int


class ChangeAnswered(Struct, frozen=True, tag="controller.change_answered"):
    """The active controller is about to answer a change (CreateTopics, AlterIsr and their like).

    `offset` is the last record the change wrote (-1: it wrote none), `high_watermark` the committed
    offset (exclusive) at that moment; `client` the process that asked.
    """

    api: str
    client: str
    error: str
    offset: int
    high_watermark: int
    controller_epoch: int


# ------------------------------------------------------------- registration, leases and fencing


class HeartbeatAnswered(Struct, frozen=True, tag="controller.heartbeat_answered"):
    """A controller answers a BrokerHeartbeat (whether active or not).

    `request_epoch` is the broker epoch in the request (-1: a registration), `client` the process
    that sent it, `next_state` a KIP-631 BrokerState name; `lease_*_ms` are the broker's wall clock,
    `lease_period_ms` the controller's setting, `active_controller` the id in the answer;
    `balance_ms` is how often it gives leaderships back to preferred replicas (0: never).
    `metadata_offset`, `target_state` and `features` (`name=lowest-highest`) are the request's;
    `most_behind` is by how many records a broker may be behind (-1: not told).
    """

    client: str
    broker_id: int
    incarnation: str
    request_epoch: int
    broker_epoch: int
    error: str
    next_state: str
    lease_start_ms: int
    lease_end_ms: int
    lease_period_ms: int
    controller_epoch: int
    active_controller: int
    active: bool
    balance_ms: int = 0
    metadata_offset: int = -1
    target_state: str = ""
    features: tuple[str, ...] = ()
    most_behind: int = -1


class LeaseExpired(Struct, frozen=True, tag="controller.lease_expired"):
    """The active controller found a broker silent past its lease, by its own monotonic clock.

    `last_heard_ns` and `now_ns` are on that clock (the host's, unless a clock fault is on).
    """

    broker_id: int
    broker_epoch: int
    last_heard_ns: int
    now_ns: int
    lease_period_ms: int
    controller_epoch: int


class BrokerStateChanged(Struct, frozen=True, tag="broker.state_changed"):
    """A broker changed its own state (KIP-631 names). `reason` says why, in one word.

    Reasons: registered, unfenced, lease_expired, refused, taken_over, shutdown_requested,
    shutdown_granted, shutdown_timeout. `broker_epoch` is the one it holds after the change,
    `global_state` the registration draft's word for the new state.
    """

    broker_id: int
    old: str
    new: str
    broker_epoch: int
    reason: str
    global_state: str = ""


class BrokerStopping(Struct, frozen=True, tag="broker.stopping"):
    """A broker was asked to end in good order (SIGINT, SIGTERM), in `state`; it wants SHUTDOWN now.

    It ends `limit_ms` from now at the latest. `global_state` is the registration draft's word.
    """

    broker_id: int
    state: str
    global_state: str
    limit_ms: int


class HeartbeatSent(Struct, frozen=True, tag="broker.heartbeat_sent"):
    """A broker is about to send a BrokerHeartbeat as its request number `correlation`."""

    broker_id: int
    broker_epoch: int
    controller: int
    correlation: int
    target_state: str
    lease_start_ms: int
    metadata_offset: int


class LeaseGranted(Struct, frozen=True, tag="broker.lease_granted"):
    """A broker got an accepting heartbeat answer; it acts until `ends_at_ns` by its own clock."""

    broker_id: int
    broker_epoch: int
    next_state: str
    lease_start_ms: int
    lease_end_ms: int
    ends_at_ns: int
    controller_epoch: int


class HeartbeatRefused(Struct, frozen=True, tag="broker.heartbeat_refused"):
    """A broker got a refusing heartbeat answer."""

    broker_id: int
    broker_epoch: int
    error: str
    controller: int


# -------------------------------------------------------------------------------- the data plane


class LeadershipStarted(Struct, frozen=True, tag="replica.leadership_started"):
    """This broker begins to serve as leader of the partition in `leader_epoch`.

    `keep_in_sync_ms` is how long it lets a follower lag before it asks to drop it (0: not told).
    """

    topic: str
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    log_start: int
    log_end: int
    high_watermark: int
    keep_in_sync_ms: int = 0


class LeadershipEnded(Struct, frozen=True, tag="replica.leadership_ended"):
    """This broker stopped serving as leader.

    `reason`: metadata, fenced, deleted (the topic), unassigned (no replica any more), shutdown.
    """

    topic: str
    partition: int
    leader_epoch: int
    reason: str


class FollowingStarted(Struct, frozen=True, tag="replica.following_started"):
    """This broker follows `leader` in `leader_epoch`, from its own log as given."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    log_end: int
    high_watermark: int


class LogAppended(Struct, frozen=True, tag="replica.log_appended"):
    """A batch was appended to this broker's log (on disk, perhaps unsynced).

    `batch_epoch` is the leader epoch in the batch; `log_end` the offset after it; `expected_base`
    the log's end before; `digest` a checksum of the batch as stored.
    """

    topic: str
    partition: int
    base_offset: int
    log_end: int
    expected_base: int
    batch_epoch: int
    leader_epoch: int
    as_leader: bool
    digest: str
    producer_id: int
    base_sequence: int


class LogTruncated(Struct, frozen=True, tag="replica.log_truncated"):
    """It dropped [to_offset, from_log_end) of its log. `reason`: leader_epoch or recovery."""

    topic: str
    partition: int
    to_offset: int
    from_log_end: int
    high_watermark: int
    leader_epoch: int
    reason: str


class HighWatermarkAdvanced(Struct, frozen=True, tag="replica.high_watermark"):
    """This replica's high watermark (exclusive) is now `high_watermark`.

    On the leader `isr` is the stored ISR and `counted` the set the mark was computed over
    (the stored ISR and every replica being added, see RP-32); on a follower both are empty.
    """

    topic: str
    partition: int
    high_watermark: int
    log_end: int
    leader_epoch: int
    as_leader: bool
    isr: tuple[int, ...]
    counted: tuple[int, ...]


class FollowerFetched(Struct, frozen=True, tag="replica.follower_fetched"):
    """The leader took a follower's fetch into account: that replica's log reaches `offset`.

    Written when the offset differs from the last one counted for that follower. `client` is the
    fetching process, `broker_epoch` the one in its request.
    """

    topic: str
    partition: int
    leader_epoch: int
    follower: int
    client: str
    broker_epoch: int
    offset: int


class IsrChangeAsked(Struct, frozen=True, tag="replica.isr_change_asked"):
    """A leader asks the controller for a new ISR; `ends`, `high_watermark` say on what ground.

    `ends` holds the log ends of the replicas in `new_isr`, in its order; `epoch_start` is the
    start offset of the leader's epoch; `lag_ns` how long the slowest dropped one was behind.
    """

    topic: str
    partition: int
    leader_epoch: int
    broker_epoch: int
    old_isr: tuple[int, ...]
    new_isr: tuple[int, ...]
    ends: tuple[int, ...]
    high_watermark: int
    epoch_start: int
    lag_ns: int


class IsrChangeAnswered(Struct, frozen=True, tag="replica.isr_change_answered"):
    """The leader got the controller's answer to its AlterIsr.

    `leader_epoch` is that in which it asked, `granted_epoch` the one the change led to (-1: none).
    """

    topic: str
    partition: int
    leader_epoch: int
    error: str
    isr: tuple[int, ...]
    granted_epoch: int = -1


class ReplicaCheckpointed(Struct, frozen=True, tag="replica.checkpointed"):
    """A replica is about to store its high watermark, and how far its log is synced to the disk.

    What is below `flushed` survives the loss of the page cache. Written when either changed.
    """

    topic: str
    partition: int
    high_watermark: int
    flushed: int


class ReplicaRemoved(Struct, frozen=True, tag="replica.removed"):
    """This broker is about to close its replica, if it is open, and to delete its log.

    `reason` is deleted (the topic), unassigned (the broker is no replica any more), or stray (found
    on the disk at start, and no replica of this broker's).
    """

    topic: str
    partition: int
    topic_id: str
    reason: str


class ProduceAnswered(Struct, frozen=True, tag="broker.produce_answered"):
    """A broker is about to answer one partition of a Produce.

    `base_offset` to `log_end` (exclusive) is what was stored, -1 on error; `ends` the log ends the
    leader knows of the members of `isr`, in its order; `duplicate`: the batch was stored before.
    """

    topic: str
    partition: int
    client: str
    acks: int
    error: str
    base_offset: int
    log_end: int
    leader_epoch: int
    high_watermark: int
    isr: tuple[int, ...]
    ends: tuple[int, ...]
    duplicate: bool


class FetchServed(Struct, frozen=True, tag="broker.fetch_served"):
    """A broker is about to answer a client's fetch of one partition with records.

    `to_offset` is exclusive; `state` is the broker's KIP-631 state then, `log_end` what it had.
    """

    topic: str
    partition: int
    client: str
    from_offset: int
    to_offset: int
    high_watermark: int
    leader_epoch: int
    state: str
    log_end: int = -1


class RequestRefused(Struct, frozen=True, tag="broker.request_refused"):
    """A node refused a request, or one partition of it, without effect.

    `topic` is empty where no partition is concerned. `reason` is one word: fenced, not_leader,
    stale_broker_epoch, stale_leader_epoch, taken_over, not_controller, not_enough_replicas, ...
    `requester` is the broker id the request claims (-1: a client).
    """

    api: str
    topic: str
    partition: int
    client: str
    requester: int
    error: str
    reason: str
    state: str


# ---------------------------------------------------------------------------------------- clients


class ClientStarted(Struct, frozen=True, tag="client.started"):
    """A client session began: producer, consumer, admin or probe, with its library."""

    kind: str
    library: str


class ProduceInvoked(Struct, frozen=True, tag="client.produce_invoked"):
    """A client hands a message to its library; `operation`, in the payload, is unique in a run.

    An `idempotent` producer's message is stored once, however often it is sent in one producer
    epoch (KIP-98).
    """

    operation: str
    topic: str
    partition: int
    acks: int
    idempotent: bool = False


class ProduceCompleted(Struct, frozen=True, tag="client.produce_completed"):
    """The outcome of a produce: ok (stored at `offset`), failed (certainly not stored), unknown."""

    operation: str
    topic: str
    partition: int
    acks: int
    outcome: str
    offset: int
    error: str


class ProducerEpochChanged(Struct, frozen=True, tag="client.producer_epoch"):
    """An idempotent producer's library began another epoch, or got another producer id (KIP-360).

    What was on its way then goes out again under the new one, and no broker can tell whether it was
    stored before. It happened after `since_ns` and before this event; told of each partition that
    the client writes to.
    """

    topic: str
    partition: int
    producer_id: int
    epoch: int
    since_ns: int


class Polled(Struct, frozen=True, tag="client.polled"):
    """A consumer got messages of one partition, in this order; `offsets` and `operations` agree.

    `final` marks the reading of every partition from start to end after the run.
    """

    topic: str
    partition: int
    offsets: tuple[int, ...]
    operations: tuple[str, ...]
    final: bool


class ConsumerPositioned(Struct, frozen=True, tag="client.positioned"):
    """A consumer was assigned or sought to `offset` (-2 the beginning, -1 the end)."""

    topic: str
    partition: int
    offset: int


class ReadCompleted(Struct, frozen=True, tag="client.read_completed"):
    """A final reading of one partition ended: ok if all of [start, end) was seen, else unknown.

    Its end was asked for at `asked_ns` (CLOCK_MONOTONIC; 0: not known).
    """

    topic: str
    partition: int
    start: int
    end: int
    outcome: str
    error: str
    asked_ns: int = 0


class ProbeCompleted(Struct, frozen=True, tag="client.probe_completed"):
    """One raw request was sent to one broker, whoever leads, and this came back.

    `outcome` is answered, refused (an error code), closed, or timeout; `error` is the Kafka error
    name; `records` the number of messages in a fetch answer; `base_offset` the offset of an
    accepted produce (-1: none); `sent_at_ns` when the request left; `brokers` the broker ids that
    a Metadata answer names; `answer`, where bytes were sent, the frame that came back, without its
    length, or the metrics page, in hexadecimal.
    """

    operation: str
    api: str
    broker: int
    slot: str
    topic: str
    partition: int
    outcome: str
    error: str
    records: int
    base_offset: int
    sent_at_ns: int
    brokers: tuple[int, ...] = ()
    answer: str = ""


class AdminCompleted(Struct, frozen=True, tag="client.admin_completed"):
    """An administrative call ended: ok, failed or unknown. `subject` is the topic it was about.

    `api` is the command: create_topic, delete_topic, list_topics, describe_cluster, reassign,
    list_reassignments, elect_preferred, alter_settings, delete_broker, add_brokers or rebalance.
    The subject of those about brokers are their ids; `details` is what a listing found.
    """

    operation: str
    api: str
    subject: str
    outcome: str
    error: str
    details: tuple[str, ...] = ()


class ClientFailed(Struct, frozen=True, tag="client.failed"):
    """The client library reported a fatal error, or its worker died."""

    error: str
    fatal: bool


# --------------------------------------------------------------------------------------- envelope


class Unrecognised(Struct, frozen=True, tag="fencepost.unrecognised"):
    """An event of a kind that no loaded plugin declares: kept whole, judged by no rule."""

    kind: str
    raw: str


Body = (
    RunStarted | PhaseStarted | RunEnded | ProcessSpawned | ProcessExited | NodeStarted
    | RecoveryStarted | RecoveryEnded
    | NodeStopped | Stalled | EvidenceMissed
    | ConnectionClosed | FaultStruck | FaultHealed | TestStarted | TestEnded
    | PromiseWitnessed
    | ClusterRecovered | ElectionStarted | VoteAnswered | ControllerElected | ControllerResigned
    | ControllerFollowed | QuorumLearned
    | MetadataCommitted | MetadataApplied | MetadataDigest | FeatureFinalized | SnapshotStarted
    | SnapshotStored | SnapshotLoaded | SnapshotKnown | SnapshotAsked
    | MetricsReported | MetadataTruncated
    | StateReverted | BrokerCommitted
    | TopicCommitted | PartitionCommitted | TopicMarked | BrokerDeleted | ChangeAnswered
    | HeartbeatAnswered | LeaseExpired
    | BrokerStateChanged | BrokerStopping | HeartbeatSent | LeaseGranted | HeartbeatRefused
    | LeadershipStarted
    | LeadershipEnded | FollowingStarted | LogAppended | LogTruncated | HighWatermarkAdvanced
    | FollowerFetched | IsrChangeAsked | IsrChangeAnswered | ReplicaCheckpointed
    | ReplicaRemoved | ProduceAnswered | FetchServed
    | RequestRefused | ClientStarted | ProduceInvoked | ProduceCompleted
    | ProducerEpochChanged | Polled
    | ConsumerPositioned | ReadCompleted | ProbeCompleted | AdminCompleted | ClientFailed
    | Unrecognised
)  # fmt: skip
"""Every kind Fencepost itself knows; a plugin's kinds are joined to it by `Codec`."""

KINDS: tuple[type[Struct], ...] = Body.__args__


class Event(Struct, frozen=True):
    """One thing that happened: the envelope. `body` is one of `KINDS` or of a plugin's kinds."""

    run: str
    process: str
    node_seq: int
    at_ns: int
    body: Struct
    cause: Cause | None = None

    @property
    def kind(self) -> str:
        """The body's tag, such as `broker.state_changed`."""
        return kind_name(type(self.body))

    @property
    def ref(self) -> Cause:
        """How other events name this one."""
        return Cause(self.process, self.node_seq)


class _Line(Struct, frozen=True):
    """The envelope with its body still encoded."""

    run: str
    process: str
    node_seq: int
    at_ns: int
    body: msgspec.Raw
    cause: Cause | None = None


class _Tag(Struct, frozen=True):
    type: str


def kind_name(kind: type[Struct]) -> str:
    """The tag of a body class; raises TypeError for a class that has none."""
    tag = kind.__struct_config__.tag
    if not isinstance(tag, str):
        raise TypeError(f"{kind.__name__} has no string tag")
    return tag


class Codec:
    """Events to NDJSON lines and back, for Fencepost's kinds and those of the given plugins."""

    LINE_END: ClassVar[bytes] = b"\n"

    def __init__(self, plugin_kinds: tuple[type[Struct], ...] = ()) -> None:
        for kind in plugin_kinds:
            if "." not in kind_name(kind):
                raise ValueError(f"the event kind {kind_name(kind)!r} is not named plugin.name")
        self.kinds = {kind_name(kind): kind for kind in (*KINDS, *plugin_kinds)}
        if len(self.kinds) != len(KINDS) + len(plugin_kinds):
            raise ValueError("two event kinds share one name")
        self._encoder = msgspec.json.Encoder()
        self._line = msgspec.json.Decoder(_Line)
        self._tag = msgspec.json.Decoder(_Tag)
        self._bodies = {name: msgspec.json.Decoder(kind) for name, kind in self.kinds.items()}

    def encode(self, event: Event) -> bytes:
        """One line, its end included."""
        return self._encoder.encode(event) + self.LINE_END

    def decode(self, line: bytes) -> Event:
        """The event of one line; raises msgspec.DecodeError when it is not a whole event.

        A kind that nobody declared comes back as `Unrecognised`, with its text.
        """
        got = self._line.decode(line)
        name = self._tag.decode(got.body).type
        decoder = self._bodies.get(name)
        body: Struct
        if decoder is None:
            body = Unrecognised(name, bytes(got.body).decode())
        else:
            body = decoder.decode(got.body)
        return Event(got.run, got.process, got.node_seq, got.at_ns, body, got.cause)
