"""Kinds of events of brokers and controllers over ZooKeeper: registrations, KIP-343's heartbeats,
and KIP-380's control requests.

A broker epoch is the czxid of a registration; KIP-343 calls it the incarnation id.
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
"""Why a controller changes a broker's state."""


class SessionChanged(Struct, frozen=True, gc=False, tag="zookeeper.session", kw_only=True):
    """This node's session with ZooKeeper becomes `connected`, `suspended` or `ended`.

    `session` is 0 if there was no session. `how` is the way in which it ended.
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


class ZnodeUnreadable(Struct, frozen=True, gc=False, tag="zookeeper.unreadable", kw_only=True):
    """This node has read a znode with invalid content, and ignores it."""

    reason: str
    """Which znode, and why, as free text of the node."""

    def sentence(self) -> str:
        return f"cannot read a znode: {self.reason}"


class BrokerRegistered(
    Struct, frozen=True, gc=False, tag="zookeeper.broker_registered", kw_only=True
):
    """This broker has created its ephemeral znode, whose czxid is `broker_epoch` (HB-01; -1: the
    broker does not know it).

    `version` is its BrokerInfo version, `protocol` its inter.broker.protocol (-1: not known).
    `overwrote`: the broker deleted a znode of another process in the same transaction.
    `reachable`: its BrokerInfo has an address for other brokers.
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


class ControllerBegan(
    Struct, frozen=True, gc=False, tag="zookeeper.controller_began", kw_only=True
):
    """This broker holds /controller, and has stored `epoch`; its term begins.

    `first`: it is the cluster's first controller. `heartbeat_timeout_ms` is the silence after which
    it declares a broker inactive, `balance_ms` the interval at which it returns leaderships to
    preferred replicas (0: never), `session_timeout_ms` its session timeout (0: not known).
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


class ControllerEnded(
    Struct, frozen=True, gc=False, tag="zookeeper.controller_ended", kw_only=True
):
    """This broker has stopped acting as the controller of `epoch`.

    `reason` is session (its session is suspended or has ended), or deposed (another controller is
    elected, or another process has this broker's id).
    """

    epoch: int
    reason: Literal["session", "deposed", "shutdown"]

    def sentence(self) -> str:
        return f"stopped being the controller of epoch {self.epoch} ({self.reason})"

    def authority(self) -> Sequence[Authority]:
        return (Authority(CONTROLLER_SCOPE, Change.LOST, self.epoch, wide=True),)


class MetadataHeartbeatSent(
    Struct, frozen=True, gc=False, tag="broker.metadata_heartbeat_sent", kw_only=True
):
    """A broker sends a MetadataHeartbeat as its request number `correlation`."""

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
    Struct, frozen=True, gc=False, tag="broker.metadata_heartbeat_received", kw_only=True
):
    """A broker received the answer to a heartbeat that it sent at `sent_ns` of its own clock.

    `state` is the state's number in the answer. The broker fences itself `timeout_ms` after it sent
    the last accepted heartbeat.
    """

    broker_id: int
    incarnation_id: int
    controller: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
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
    Struct, frozen=True, gc=False, tag="controller.metadata_heartbeat_answered", kw_only=True
):
    """A node answers a MetadataHeartbeat, as the controller (`active`) or not.

    `incarnation_id` and `target_state` are the request's. `known` is the incarnation id that the
    controller had for the broker before (-1: none). `state` is the broker's state in the answer.
    """

    client: str
    broker_id: int
    incarnation_id: int
    known: int
    target_state: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
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


class BrokerDeclared(Struct, frozen=True, gc=False, tag="controller.broker_declared", kw_only=True):
    """The controller declares a broker's new state (KIP-343).

    `version` is the broker's BrokerInfo version. By the controller's clock, the broker has been
    silent for `silent_ms`; the timeout is `timeout_ms`.
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
        live = ("Active", "Stopping")
        change = Change.NOTED
        if self.new in live:
            change = Change.GAINED
        elif self.old in live:  # a broker that was never active loses nothing
            change = Change.LOST
        elif self.reason == "controller_elected" and self.new == "Absent":
            # This controller knows no former state. If it was active before, it is so no more.
            change = Change.LOST
        scope = broker_scope(self.broker_id)
        return (Authority(scope, change, self.incarnation_id, None, scope),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class BrokerChangeHandled(
    Struct, frozen=True, gc=False, tag="controller.broker_change_handled", kw_only=True
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


class ControlRequestSent(
    Struct, frozen=True, gc=False, tag="controller.control_request_sent", kw_only=True
):
    """The controller sends a broker a control request as its request number `correlation`.

    `partitions` have the form topic-partition. `attempt` counts from 1 (0: not known): a request is
    repeated until it is answered, or the broker's queue ends. `deletes`: a StopReplica deletes the
    data, too. `brokers` are the live brokers in an UpdateMetadata.
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
    Struct, frozen=True, gc=False, tag="broker.control_request_answered", kw_only=True
):
    """A broker answers a control request, and has carried it out if `error` is NONE.

    `request_epoch` is the broker epoch in the request (-1: its version has none), `broker_epoch`
    the broker's own, `seen_epoch` the highest controller epoch that the broker had seen before.
    `first`: this is the first LeaderAndIsr that the process carries out. `brokers` are the live
    brokers that the broker has read in an UpdateMetadata. `client` is the sending process (empty:
    not known). If the event has no cause, `correlation` is the sender's number of the request.
    A broker may handle several requests at once: it worked on this one for the `handled_ns` before
    the event (0: it decided and answered in one step).
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
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
    partitions: tuple[str, ...]
    first: bool = False
    deletes: bool = False
    brokers: tuple[int, ...] = ()
    correlation: int = -1
    handled_ns: int = 0

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


class ReplicaStopped(Struct, frozen=True, gc=False, tag="replica.stopped", kw_only=True):
    """A StopReplica has taken this replica offline; its data are kept."""

    topic: str
    partition: int
    controller_epoch: int
    request_epoch: int

    def sentence(self) -> str:
        return f"stopped its replica of {self.topic}-{self.partition}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ControlledShutdownAnswered(
    Struct, frozen=True, gc=False, tag="controller.controlled_shutdown_answered", kw_only=True
):
    """A node answers a broker's ControlledShutdown, which has broker epoch `request_epoch` (-1: its
    version has none).

    `known_epoch` is the broker epoch that the controller has cached (-1: none, or not known),
    `remaining` are the partitions that the broker still leads. `client` is the sending process
    (empty: not known).
    """

    client: str
    broker_id: int
    request_epoch: int
    known_epoch: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
    remaining: tuple[str, ...]
    controller_epoch: int

    def sentence(self) -> str:
        return (
            f"answered ControlledShutdown of broker {self.broker_id} with broker epoch "
            f"{self.request_epoch}: {self.error}, {len(self.remaining)} partitions are left"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class IsrChangeJudged(
    Struct, frozen=True, gc=False, tag="controller.isr_change_judged", kw_only=True
):
    """A node answers an IsrChange, as the controller (`active`) or not.

    `known` is the incarnation id that the controller has for the broker (-1: none). `partitions`,
    `isrs` (such as 1,2), `leader_epochs` and `results` have one entry for each requested partition.
    """

    client: str
    broker_id: int
    incarnation_id: int
    known: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
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
