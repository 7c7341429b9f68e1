"""The options and commands that workers of Kafka clients understand.

A workload of Kafka clients may use any library. It understands these options and commands, and
records Kafka's `client.*` events, so a test means the same with any library. A worker is started
with `WorkerConfig` and one of `ClientOptions`; an administrator, a probe and a consumer take
`ClientCommand`s as well. A command's `operation`, unique in a run, names it in the events.

See docs/decisions/48-batches.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from msgspec import Struct

BEGINNING = -2
"""The offset from which a consumer reads everything."""


FETCH_MIN_BYTES = 10_000
"""A consumer's fetch waits for so many bytes, so that it reads several messages at a time; its
limit of time is short."""


class ProducerOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="producer", forbid_unknown_fields=True
):
    """Produces to the partitions in turn until `count` messages were invoked (0: until stopped).

    `acks` is 0, 1 or -1 (all); `rate` is messages a second; `size` the bytes of a message, which
    begins with its operation id. The messages of `linger_ms` go to one partition, in one batch if
    nothing delays them, as with Kafka's sticky partitioner (KIP-480); 0: each message is a batch
    of its own. When stopped, it waits `flush_ms` for reports; the outcome of the rest is unknown.
    `settings`, here and below, are the client library's own; they override those of the worker.
    `user`, here and below, is whom a secured cluster knows the client by (empty: by its slot).
    """

    partitions: tuple[tuple[str, int], ...]
    acks: int = -1
    idempotent: bool = True
    count: int = 0
    rate: float = 50.0
    size: int = 100
    linger_ms: int = 0
    flush_ms: int = 10_000
    settings: Mapping[str, str] = {}
    user: str = ""

    @property
    def in_a_row(self) -> int:
        """How many messages in a row go to one partition."""
        return max(1, ceil(self.rate * self.linger_ms / 1000))

    def place(self, number: int) -> tuple[str, int]:
        """The topic and partition of the message with that number; the first one has 0."""
        return self.partitions[number // self.in_a_row % len(self.partitions)]


class ConsumerOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="consumer", forbid_unknown_fields=True
):
    """Reads the partitions from `offset` until stopped, without a group, and commits nothing."""

    partitions: tuple[tuple[str, int], ...]
    offset: int = BEGINNING
    settings: Mapping[str, str] = {}
    user: str = ""


class ReaderOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="reader", forbid_unknown_fields=True
):
    """Reads each partition from its start to the end that it has when the reading begins, then ends
    by itself.

    `final` marks the reading after the run, by which lost writes are judged: it records a
    read_completed for each partition, with the outcome unknown if `limit_ms` was too short. Any
    other reading that is incomplete records a client.failed. `contents` also records keys and
    values; a partition then ends where the library says so, since control records of transactions
    take offsets that nobody reads.

    `shown` has for each partition the end by the offsets that clients were shown; none: not known.
    A leader that names a lower one is asked again for `settle_ms`, and then believed: a new
    leader's high watermark may lag behind the former one's, and releases of Kafka before KIP-207
    name it at once.
    """

    partitions: tuple[tuple[str, int], ...]
    final: bool
    shown: tuple[int, ...] = ()
    settle_ms: int = 5_000
    limit_ms: int = 30_000
    settings: Mapping[str, str] = {}
    contents: bool = False

    @property
    def ends(self) -> Mapping[tuple[str, int], int]:
        """Each partition, with the end that clients were shown (0: not known)."""
        shown = self.shown or (0,) * len(self.partitions)
        return dict(zip(self.partitions, shown, strict=True))


class AdminOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="admin", forbid_unknown_fields=True
):
    """Takes every `AdminCommand`, one after another."""

    limit_ms: int = 15_000
    settings: Mapping[str, str] = {}


class ProbeOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="probe", forbid_unknown_fields=True
):
    """Takes `ProbeFetch`, `ProbeProduce`, `ProbeMetadata`, `ProbeBytes`, `ProbeMetrics`,
    `ProbeController`, `AddVoter` and `RemoveVoter`, one after another."""


ClientOptions = ProducerOptions | ConsumerOptions | ReaderOptions | AdminOptions | ProbeOptions
"""How a client is started, by its kind."""


class CreateTopic(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="do",
    tag="create_topic",
    forbid_unknown_fields=True,
):
    """To an administrator; `config` holds the topic's own settings."""

    operation: str
    topic: str
    partitions: int
    replication: int
    config: Mapping[str, str] = {}


class DeleteTopic(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="do",
    tag="delete_topic",
    forbid_unknown_fields=True,
):
    """To an administrator."""

    operation: str
    topic: str


class ListTopics(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="list_topics", forbid_unknown_fields=True
):
    """To an administrator."""

    operation: str


class DescribeCluster(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="do",
    tag="describe_cluster",
    forbid_unknown_fields=True,
):
    """To an administrator."""

    operation: str


class Reassign(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="reassign", forbid_unknown_fields=True
):
    """To an administrator: move the partitions (topic, number) to these replicas.

    No replicas: cancel the reassignment under way.
    """

    operation: str
    moves: tuple[tuple[str, int, tuple[int, ...]], ...]


class ListReassignments(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="do",
    tag="list_reassignments",
    forbid_unknown_fields=True,
):
    """To an administrator; the details are the partitions that are being reassigned."""

    operation: str


class ElectPreferred(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="do",
    tag="elect_preferred",
    forbid_unknown_fields=True,
):
    """To an administrator: return the topic's partitions to their preferred replicas."""

    operation: str
    topic: str
    partitions: tuple[int, ...]


class AlterSettings(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="do",
    tag="alter_settings",
    forbid_unknown_fields=True,
):
    """To an administrator: sets a topic's own settings."""

    operation: str
    topic: str
    config: Mapping[str, str]


class DeleteBroker(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="do",
    tag="delete_broker",
    forbid_unknown_fields=True,
):
    """To an administrator."""

    operation: str
    broker: int


class AddBrokers(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="add_brokers", forbid_unknown_fields=True
):
    """To an administrator: move replicas to brokers that have none yet."""

    operation: str
    brokers: tuple[int, ...]


class Rebalance(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="rebalance", forbid_unknown_fields=True
):
    """To an administrator: place every partition again over all live brokers."""

    operation: str


class Seek(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="seek", forbid_unknown_fields=True
):
    """To a consumer: continue from `offset` in one of its partitions."""

    topic: str
    partition: int
    offset: int


class ProbeFetch(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="fetch", forbid_unknown_fields=True
):
    """One Fetch to the process in `slot`, leader or not; never retried."""

    operation: str
    slot: str
    broker: int
    topic: str
    partition: int
    offset: int = 0
    limit_ms: int = 5_000


class ProbeProduce(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="produce", forbid_unknown_fields=True
):
    """One Produce of one message, its operation id, to the process in `slot`; never retried."""

    operation: str
    slot: str
    broker: int
    topic: str
    partition: int
    acks: int = -1
    limit_ms: int = 5_000


class ProbeMetadata(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="metadata", forbid_unknown_fields=True
):
    """One Metadata request about a topic to the process in `slot`; never retried."""

    operation: str
    slot: str
    broker: int
    topic: str
    limit_ms: int = 5_000


class ProbeController(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="controller", forbid_unknown_fields=True
):
    """One CreateTopics, without credentials, to the controller's own endpoint in `slot`."""

    operation: str
    slot: str
    broker: int
    topic: str
    port: int
    limit_ms: int = 5_000


class ProbeBytes(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="bytes", forbid_unknown_fields=True
):
    """One request, `frame` in hexadecimal without its length, to a port of the process in `slot`.

    The answer is recorded as it came. Never retried.
    """

    operation: str
    slot: str
    broker: int
    port: int
    frame: str
    limit_ms: int = 5_000


class ProbeMetrics(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="metrics", forbid_unknown_fields=True
):
    """One HTTP GET of the metrics page of the process in `slot`, without a link.

    The result is answered if the page came, and refused for any other status, or if messages are
    passed as values, not as bytes.
    """

    operation: str
    slot: str
    broker: int
    port: int
    limit_ms: int = 5_000


class AddVoter(
    Struct, frozen=True, kw_only=True, tag_field="do", tag="add_voter", forbid_unknown_fields=True
):
    """To a probe: ask the process in `slot` to add controller `node`, at host and port, to the
    voters."""

    operation: str
    slot: str
    broker: int
    node: int
    host: str
    port: int
    limit_ms: int = 5_000


class RemoveVoter(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="do",
    tag="remove_voter",
    forbid_unknown_fields=True,
):
    """To a probe: ask the process in `slot` to remove controller `node` from the voters."""

    operation: str
    slot: str
    broker: int
    node: int
    limit_ms: int = 5_000


AdminCommand = (
    CreateTopic | DeleteTopic | ListTopics | DescribeCluster | Reassign | ListReassignments
    | ElectPreferred | AlterSettings | DeleteBroker | AddBrokers | Rebalance
)  # fmt: skip
"""What an admin client can be asked to do."""
ProbeCommand = (
    ProbeFetch | ProbeProduce | ProbeMetadata | ProbeBytes | ProbeMetrics | ProbeController
    | AddVoter | RemoveVoter
)  # fmt: skip
"""What a probe can be asked to send."""
ClientCommand = AdminCommand | ProbeCommand | Seek
"""Every command to a client."""
