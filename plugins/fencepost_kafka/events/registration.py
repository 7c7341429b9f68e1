"""Kinds of events about registration, leases and fencing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from msgspec import Struct

from fencepost import Authority, Change, Origin
from fencepost_kafka.events.values import BrokerStateName, GlobalState, StateReason
from fencepost_kafka.events.words import broker_scope, scopes


class HeartbeatAnswered(
    Struct, frozen=True, gc=False, kw_only=True, tag="controller.heartbeat_answered"
):
    """A controller answers a BrokerHeartbeat, active or not.

    `request_epoch` is the broker epoch in the request (-1: a registration), `client` the process
    that sent it, `next_state` a KIP-631 BrokerState name. `lease_*_ms` are the broker's wall clock,
    `lease_period_ms` the controller's setting, `active_controller` the id in the answer.
    `balance_ms` is how often it returns leaderships to preferred replicas (0: never).
    `metadata_offset`, `target_state` and `features` (`name=lowest-highest`) are the request's;
    `most_behind` is how many records a broker may be behind (-1: not recorded). `received_at_ns` is
    when the request came in (0: not recorded), where the event comes after the answer. `client` is
    empty where the node that answers does not know the process.
    """

    client: str
    broker_id: int
    incarnation: str
    request_epoch: int
    broker_epoch: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
    next_state: BrokerStateName
    lease_start_ms: int
    lease_end_ms: int
    lease_period_ms: int
    controller_epoch: int
    active_controller: int
    active: bool
    balance_ms: int = 0
    metadata_offset: int = -1
    target_state: Literal[BrokerStateName, ""] = ""
    features: tuple[str, ...] = ()
    most_behind: int = -1
    received_at_ns: int = 0

    def sentence(self) -> str:
        what = "the registration" if self.request_epoch < 0 else "a heartbeat"
        if self.error != "NONE":
            return f"refused {what} of {self.client} as broker {self.broker_id}: {self.error}"
        return (
            f"accepted {what} of {self.client} as broker {self.broker_id}: broker epoch "
            f"{self.broker_epoch}, "
            f"next state {self.next_state}, controller epoch {self.controller_epoch}"
        )

    def authority(self) -> Sequence[Authority]:
        """A refusal, or a registration. A renewal is recorded with more information by the broker's
        `LeaseGranted`."""
        if self.error == "NOT_CONTROLLER" or (self.error == "NONE" and self.request_epoch >= 0):
            return ()
        if not self.client:
            return ()
        change = Change.GAINED if self.error == "NONE" else Change.REFUSED
        matter = f"answered {self.client} {self.error}"
        scope = broker_scope(self.broker_id)
        return (Authority(scope, change, self.broker_epoch, self.client, matter=matter),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("answer", self.client),) if self.client else ()

    def came_from(self, process: str) -> Sequence[Origin]:
        return ()


class LeaseExpired(Struct, frozen=True, gc=False, kw_only=True, tag="controller.lease_expired"):
    """The active controller found a broker silent past its lease, by its own monotonic clock.

    `last_heard_ns` and `now_ns` are on that clock (the host's, unless a clock fault is on); -1: it
    is not known when the broker was heard last.
    """

    broker_id: int
    broker_epoch: int
    last_heard_ns: int
    now_ns: int
    lease_period_ms: int
    controller_epoch: int

    def sentence(self) -> str:
        silent = f"silent for more than {self.lease_period_ms} ms"
        if self.last_heard_ns >= 0:
            silent_ms = (self.now_ns - self.last_heard_ns) // 1_000_000
            silent = f"silent for {silent_ms} ms of {self.lease_period_ms}"
        return (
            f"expired the lease of broker {self.broker_id}, broker epoch {self.broker_epoch}, "
            f"{silent}"
        )

    def authority(self) -> Sequence[Authority]:
        return (Authority(broker_scope(self.broker_id), Change.LOST, self.broker_epoch, None),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class BrokerStateChanged(Struct, frozen=True, gc=False, tag="broker.state_changed", kw_only=True):
    """A broker changed its own state (KIP-631 names). `reason` is one word.

    Reasons: registered, unfenced, lease_expired, refused, taken_over, shutdown_requested,
    shutdown_granted, shutdown_timeout. `broker_epoch` is the one it holds after the change,
    `global_state` the registration draft's name of the new state.
    """

    broker_id: int
    old: BrokerStateName
    new: BrokerStateName
    broker_epoch: int
    reason: StateReason
    global_state: Literal[GlobalState, ""] = ""

    def sentence(self) -> str:
        return (
            f"went from {self.old} to {self.new} ({self.reason}), broker epoch {self.broker_epoch}"
        )

    def authority(self) -> Sequence[Authority]:
        change = Change.NOTED
        if self.new == "ACTIVE" and self.old != "ACTIVE":
            change = Change.GAINED
        elif self.old == "ACTIVE" and self.new != "ACTIVE":
            change = Change.LOST
        scope, state = broker_scope(self.broker_id), self.new.lower()
        return (Authority(scope, change, self.broker_epoch, state=state),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class BrokerStopping(Struct, frozen=True, gc=False, tag="broker.stopping", kw_only=True):
    """A broker in `state` was asked to shut down (SIGINT, SIGTERM); it requests SHUTDOWN now.

    It ends `limit_ms` from now at the latest. `global_state` is the registration draft's name.
    """

    broker_id: int
    state: BrokerStateName
    global_state: Literal[GlobalState, ""]
    limit_ms: int

    def sentence(self) -> str:
        return (
            f"was asked to stop while {self.state}, and ends {self.limit_ms} ms from now at the "
            "latest"
        )

    def authority(self) -> Sequence[Authority]:
        return (Authority(broker_scope(self.broker_id), Change.NOTED),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class HeartbeatSent(Struct, frozen=True, gc=False, kw_only=True, tag="broker.heartbeat_sent"):
    """A broker is about to send a BrokerHeartbeat as its request number `correlation`."""

    broker_id: int
    broker_epoch: int
    controller: int
    correlation: int
    target_state: BrokerStateName
    lease_start_ms: int
    metadata_offset: int

    def sentence(self) -> str:
        return (
            f"sends controller {self.controller} a heartbeat for {self.target_state}, broker epoch "
            f"{self.broker_epoch}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("request", process, self.correlation),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return ()


class LeaseGranted(Struct, frozen=True, gc=False, kw_only=True, tag="broker.lease_granted"):
    """A broker received an accepting heartbeat answer; it acts until `ends_at_ns` by its own
    clock."""

    broker_id: int
    broker_epoch: int
    next_state: BrokerStateName
    lease_start_ms: int
    lease_end_ms: int
    ends_at_ns: int
    controller_epoch: int

    def sentence(self) -> str:
        return (
            f"got a lease of {self.lease_end_ms - self.lease_start_ms} ms as broker "
            f"{self.broker_id}: broker "
            f"epoch {self.broker_epoch}, next state {self.next_state}, controller epoch "
            f"{self.controller_epoch}"
        )

    def authority(self) -> Sequence[Authority]:
        matter = f"lease {self.next_state} {self.controller_epoch}"
        scope = broker_scope(self.broker_id)
        return (Authority(scope, Change.GAINED, self.broker_epoch, matter=matter),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return ()

    def came_from(self, process: str) -> Sequence[Origin]:
        return (Origin(("answer", process)),)


class HeartbeatRefused(Struct, frozen=True, gc=False, tag="broker.heartbeat_refused", kw_only=True):
    """A broker received a refusing heartbeat answer."""

    broker_id: int
    broker_epoch: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
    controller: int

    def sentence(self) -> str:
        return (
            f"was refused by controller {self.controller} as broker {self.broker_id}: {self.error}"
        )

    def authority(self) -> Sequence[Authority]:
        scope = broker_scope(self.broker_id)
        matter = f"refused {self.error}"
        return (Authority(scope, Change.REFUSED, self.broker_epoch, matter=matter),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return ()

    def came_from(self, process: str) -> Sequence[Origin]:
        return (Origin(("answer", process)),)


class NodeWarned(Struct, frozen=True, gc=False, tag="node.warned", kw_only=True):
    """A node that has not joined its cluster yet logged a warning or an error, in its own words.

    It has joined once it is registered, or, as a controller, knows the active one.
    """

    level: str
    """As the node names it, such as WARN; an open set."""
    logger: str
    message: str

    def sentence(self) -> str:
        return f"logged {self.level} {self.logger}: {self.message}"
