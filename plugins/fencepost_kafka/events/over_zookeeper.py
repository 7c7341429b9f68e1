"""Kinds of events about a controller over ZooKeeper: registrations, KIP-343's heartbeats, and
KIP-380's control requests.

A broker epoch is the czxid of a registration, which KIP-343 calls incarnation id.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from msgspec import Struct

from fencepost import OWN, Authority, Change, Origin
from fencepost_kafka.events.words import CONTROLLER_SCOPE, broker_scope, scopes

ControllerState = Literal["Initial", "Inactive", "Active", "Stopping", "Absent"]
"""KIP-343's states of a broker at the controller; Absent: it has no registration."""
DeclaredFor = Literal["registered", "heartbeat", "silent", "gone", "bounced", "controller_elected"]
"""Why a controller declares a broker to be in another state."""


class SessionChanged(Struct, frozen=True, tag="zookeeper.session", kw_only=True):
    """This node's session with ZooKeeper is `connected`, `suspended` or `ended`.

    `session` is 0 where none was made. `how` says how it ended.
    """

    session: int
    state: Literal["connected", "suspended", "ended"]
    how: str = ""

    def sentence(self) -> str:
        how = f": {self.how}" if self.how else ""
        return f"has its session {self.session:x} with ZooKeeper {self.state}{how}"

    def authority(self) -> Sequence[Authority]:
        change = Change.GAINED if self.state == "connected" else Change.LOST
        return (Authority(OWN, change, self.session),)


class ZnodeUnreadable(Struct, frozen=True, tag="zookeeper.unreadable", kw_only=True):
    """This node read a znode with invalid content, and goes on without it."""

    reason: str

    def sentence(self) -> str:
        return f"cannot read a znode: {self.reason}"


class BrokerRegistered(Struct, frozen=True, tag="zookeeper.broker_registered", kw_only=True):
    """This broker has made its ephemeral znode, whose czxid is `broker_epoch` (-1: the broker does
    not know it) (HB-01).

    `version` is that of its BrokerInfo, `protocol` its inter.broker.protocol (-1: not known).
    `overwrote`: it deleted a znode of another session in the same transaction. `reachable`: its
    BrokerInfo names an address for other brokers.
    """

    broker_id: int
    broker_epoch: int
    session: int
    version: int
    overwrote: bool
    protocol: int = -1
    reachable: bool = True

    def sentence(self) -> str:
        over = ", in place of another process" if self.overwrote else ""
        return (
            f"registered as broker {self.broker_id} with broker epoch {self.broker_epoch} and "
            f"BrokerInfo {self.version}{over}"
        )

    def authority(self) -> Sequence[Authority]:
        if self.broker_epoch < 0:
            return ()
        return (Authority(broker_scope(self.broker_id), Change.GAINED, self.broker_epoch),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ControllerBegan(Struct, frozen=True, tag="zookeeper.controller_began", kw_only=True):
    """This broker holds /controller, and has stored `epoch`; it has read the cluster's state.

    `first`: no controller was before it. `heartbeat_timeout_ms` is after how long it declares a
    silent broker inactive, `balance_ms` how often it returns leaderships to preferred replicas (0:
    never), `session_timeout_ms` how long its session outlives its connection (0: not known).
    """

    epoch: int
    broker_id: int
    first: bool
    heartbeat_timeout_ms: int
    balance_ms: int = 0
    session_timeout_ms: int = 0

    def sentence(self) -> str:
        return f"became the controller, epoch {self.epoch}"

    def authority(self) -> Sequence[Authority]:
        return (
            Authority(CONTROLLER_SCOPE, Change.GAINED, self.epoch, state="controller", wide=True),
        )


class ControllerEnded(Struct, frozen=True, tag="zookeeper.controller_ended", kw_only=True):
    """This broker stopped acting as the controller of `epoch`.

    `reason`: session (its session is suspended or has ended), or deposed (a write was refused,
    since another controller has stored its epoch).
    """

    epoch: int
    reason: Literal["session", "deposed", "shutdown"]

    def sentence(self) -> str:
        return f"stopped being the controller of epoch {self.epoch} ({self.reason})"

    def authority(self) -> Sequence[Authority]:
        return (Authority(CONTROLLER_SCOPE, Change.LOST, self.epoch, wide=True),)


class MetadataHeartbeatSent(
    Struct, frozen=True, tag="broker.metadata_heartbeat_sent", kw_only=True
):
    """A broker is about to send a MetadataHeartbeat as its request number `correlation`."""

    broker_id: int
    incarnation_id: int
    controller: int
    correlation: int
    target_state: int

    def sentence(self) -> str:
        return (
            f"sends controller {self.controller} a heartbeat with incarnation id "
            f"{self.incarnation_id}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("request", process, self.correlation),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return ()


class MetadataHeartbeatReceived(
    Struct, frozen=True, tag="broker.metadata_heartbeat_received", kw_only=True
):
    """A broker received the answer to a heartbeat that it sent at `sent_ns` of its own clock.

    `state` is the number in the answer. `timeout_ms` is the broker's: it fences itself that long
    after it sent the last accepted heartbeat.
    """

    broker_id: int
    incarnation_id: int
    controller: int
    error: str
    state: int
    sent_ns: int
    timeout_ms: int

    def sentence(self) -> str:
        return f"got the answer {self.error} of controller {self.controller}, state {self.state}"

    def authority(self) -> Sequence[Authority]:
        change = Change.NOTED if self.error == "NONE" else Change.REFUSED
        scope = broker_scope(self.broker_id)
        return (Authority(scope, change, self.incarnation_id, matter=f"{self.error} {self.state}"),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return ()

    def came_from(self, process: str) -> Sequence[Origin]:
        return (Origin(("answer", process)),)


class MetadataHeartbeatAnswered(
    Struct, frozen=True, tag="controller.metadata_heartbeat_answered", kw_only=True
):
    """A node answers a MetadataHeartbeat, as the controller (`active`) or not.

    `incarnation_id` and `target_state` are the request's; `known` is the incarnation id that the
    controller had for the broker before (-1: none). `state` is the state that it decided on.
    """

    client: str
    broker_id: int
    incarnation_id: int
    known: int
    target_state: int
    error: str
    state: ControllerState
    controller_epoch: int
    active: bool

    def sentence(self) -> str:
        return (
            f"answered the heartbeat of {self.client} as broker {self.broker_id}, incarnation id "
            f"{self.incarnation_id}: {self.error}, {self.state}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("answer", self.client),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return ()


class BrokerDeclared(Struct, frozen=True, tag="controller.broker_declared", kw_only=True):
    """The controller declares a broker to be in another state (KIP-343), by its own knowledge.

    `version` is the broker's BrokerInfo version. By the controller's clock, the broker was silent
    for `silent_ms` of `timeout_ms`.
    """

    broker_id: int
    incarnation_id: int
    old: ControllerState
    new: ControllerState
    reason: DeclaredFor
    version: int
    silent_ms: int
    timeout_ms: int
    controller_epoch: int

    def sentence(self) -> str:
        return (
            f"declared broker {self.broker_id} with broker epoch {self.incarnation_id} "
            f"{self.new}, after {self.old} ({self.reason})"
        )

    def authority(self) -> Sequence[Authority]:
        change = Change.GAINED if self.new in ("Active", "Stopping") else Change.LOST
        scope = broker_scope(self.broker_id)
        return (Authority(scope, change, self.incarnation_id, state=self.new.lower()),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class BrokerChangeHandled(
    Struct, frozen=True, tag="controller.broker_change_handled", kw_only=True
):
    """The controller has compared the registrations with those that it knew.

    `bounced` are brokers whose registration is another one, though they were never seen to be
    absent. A controller that is elected knew none: all that are `live` are `added`.
    """

    controller_epoch: int
    added: tuple[int, ...]
    deleted: tuple[int, ...]
    bounced: tuple[int, ...]
    live: tuple[int, ...]

    def sentence(self) -> str:
        return (
            f"compared the registrations of brokers {list(self.live)}: added {list(self.added)}, "
            f"deleted {list(self.deleted)}, bounced {list(self.bounced)}"
        )


class ControlRequestSent(Struct, frozen=True, tag="controller.control_request_sent", kw_only=True):
    """The controller sends a broker a control request as its request number `correlation`.

    `partitions` are named topic-partition. `attempt` counts from 1 (0: not known); a request is
    sent again until it is answered, or the broker is gone. `deletes`: a StopReplica that deletes
    the data, too. `brokers` are those that an UpdateMetadata names.
    """

    api: str
    broker_id: int
    broker_epoch: int
    controller_epoch: int
    correlation: int
    partitions: tuple[str, ...]
    attempt: int
    deletes: bool = False
    brokers: tuple[int, ...] = ()

    def sentence(self) -> str:
        return (
            f"sends broker {self.broker_id} a {self.api} for its broker epoch "
            f"{self.broker_epoch}, of {len(self.partitions)} partitions"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("request", process, self.correlation),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return ()


class ControlRequestAnswered(
    Struct, frozen=True, tag="broker.control_request_answered", kw_only=True
):
    """A broker answers a control request, and has carried it out if `error` is NONE.

    `request_epoch` is the broker epoch in the request (-1: its version has none), `broker_epoch`
    the broker's own, `seen_epoch` the highest controller epoch that it had seen before. `first`: it
    is the first LeaderAndIsr that this process carries out. `brokers` are those that an
    UpdateMetadata names, as the broker has read it. `client` is the process that sent it (empty:
    not known), `correlation` the number that it gave the request, if the event has no cause.
    """

    api: str
    client: str
    broker_id: int
    controller_id: int
    controller_epoch: int
    seen_epoch: int
    request_epoch: int
    broker_epoch: int
    error: str
    partitions: tuple[str, ...]
    first: bool = False
    deletes: bool = False
    brokers: tuple[int, ...] = ()
    correlation: int = -1

    def sentence(self) -> str:
        return (
            f"answered {self.api} of controller {self.controller_id}, controller epoch "
            f"{self.controller_epoch}, for broker epoch {self.request_epoch}: {self.error}; its "
            f"own broker epoch is {self.broker_epoch}"
        )

    def authority(self) -> Sequence[Authority]:
        if self.error == "NONE":
            return ()
        scope = broker_scope(self.broker_id)
        matter = f"{self.api} {self.error}"
        return (Authority(scope, Change.REFUSED, self.broker_epoch, matter=matter),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ReplicaStopped(Struct, frozen=True, tag="replica.stopped", kw_only=True):
    """A StopReplica took this replica offline; its data stay."""

    topic: str
    partition: int
    controller_epoch: int
    request_epoch: int

    def sentence(self) -> str:
        return f"stopped its replica of {self.topic}-{self.partition}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ControlledShutdownAnswered(
    Struct, frozen=True, tag="controller.controlled_shutdown_answered", kw_only=True
):
    """The controller answers a ControlledShutdown of the broker with `request_epoch` (-1: its
    version has none).

    `known_epoch` is the broker epoch that it has cached (-1: none, or not known), `remaining` the
    partitions that the broker still leads. `client` is the process that sent it (empty: not known).
    """

    client: str
    broker_id: int
    request_epoch: int
    known_epoch: int
    error: str
    remaining: tuple[str, ...]
    controller_epoch: int

    def sentence(self) -> str:
        return (
            f"answered ControlledShutdown of broker {self.broker_id} with broker epoch "
            f"{self.request_epoch}: {self.error}, {len(self.remaining)} partitions are left"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class IsrChangeJudged(Struct, frozen=True, tag="controller.isr_change_judged", kw_only=True):
    """A node answers an IsrChange, as the controller (`active`) or not.

    `known` is the incarnation id that the controller has for the broker (-1: none). `results` are
    the errors by partition, in the order of `partitions`, whose new ISRs are `isrs`, such as 1,2,
    and whose leader epochs in the request are `leader_epochs`.
    """

    client: str
    broker_id: int
    incarnation_id: int
    known: int
    error: str
    partitions: tuple[str, ...]
    isrs: tuple[str, ...]
    leader_epochs: tuple[int, ...]
    results: tuple[str, ...]
    controller_epoch: int
    active: bool

    def sentence(self) -> str:
        if self.error != "NONE":
            return f"refused an IsrChange of broker {self.broker_id}: {self.error}"
        asked = zip(self.partitions, self.isrs, self.results, strict=True)
        each = "; ".join(f"{name} to {isr}: {error}" for name, isr, error in asked)
        return f"answered an IsrChange of broker {self.broker_id}: {each}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)
