"""Second readings of KIP-343 and KIP-380: heartbeats and control requests over ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    ControlledShutdownAnswered,
    ControlRequestAnswered,
    IsrChangeJudged,
    MetadataHeartbeatAnswered,
)
from second_readings.reading import History, Word, reading, undecided, violated

STALE = "STALE_BROKER_EPOCH"


@reading("BE-02", ControlRequestAnswered)
def rejects_stale(history: History) -> Iterator[Word]:
    """A broker rejects a request whose broker epoch is smaller than its own; an equal or larger one
    is accepted."""
    for at in history.of(ControlRequestAnswered):
        body = at.body
        if body.request_epoch < 0 or body.broker_epoch < 0:
            continue
        older = body.request_epoch < body.broker_epoch
        if older and body.error == "NONE":
            yield violated(at.process, body.api, body.request_epoch)
        if not older and body.error == STALE:
            yield violated(at.process, body.api, body.request_epoch)


@reading("BE-08", ControlRequestAnswered)
def rejects_deposed(history: History) -> Iterator[Word]:
    """A control request with a controller epoch lower than the highest the broker has seen is
    rejected."""
    for at in history.of(ControlRequestAnswered):
        if at.body.controller_epoch < at.body.seen_epoch and at.body.error == "NONE":
            yield violated(at.process, at.body.controller_epoch)


@reading("BE-10", ControlRequestAnswered)
def accepts_without_epoch(history: History) -> Iterator[Word]:
    """During a double roll, requests in versions without a broker epoch are accepted."""
    for at in history.of(ControlRequestAnswered):
        if at.body.request_epoch == -1 and at.body.error == STALE:
            yield violated(at.process, at.body.api)


@reading("BE-04", ControlledShutdownAnswered)
def rejects_shutdown(history: History) -> Iterator[Word]:
    """The controller rejects a ControlledShutdown whose broker epoch is smaller than the one it
    has cached."""
    for at in history.of(ControlledShutdownAnswered):
        body = at.body
        if 0 <= body.request_epoch < body.known_epoch and body.error == "NONE":
            yield violated(at.process, body.broker_id)


@reading("HB-01", BrokerRegistered)
def incarnations_grow(history: History) -> Iterator[Word]:
    """Incarnation ids are unique, and strictly increasing over successive registrations of one
    broker id."""
    newest: dict[int, int] = {}
    every: dict[int, tuple[str, int]] = {}
    for at in history.of(BrokerRegistered):
        body = at.body
        if body.broker_epoch < 0:
            continue
        if body.broker_epoch <= newest.get(body.broker_id, -1) or body.broker_epoch in every:
            yield violated(body.broker_id, body.broker_epoch)
        newest[body.broker_id] = max(newest.get(body.broker_id, -1), body.broker_epoch)
        every[body.broker_epoch] = at.process, body.broker_id


@reading("HB-12", MetadataHeartbeatAnswered)
def old_incarnation(history: History) -> Iterator[Word]:
    """A heartbeat with an incarnation id lower than the controller's is answered
    INVALID_INCARNATION_ID."""
    for at in history.of(MetadataHeartbeatAnswered):
        body = at.body
        if body.active and body.incarnation_id < body.known and body.error == "NONE":
            yield violated(body.broker_id, body.incarnation_id)


@reading("HB-13", MetadataHeartbeatAnswered)
def newer_incarnation(history: History) -> Iterator[Word]:
    """A heartbeat with a higher incarnation id is valid."""
    for at in history.of(MetadataHeartbeatAnswered):
        body = at.body
        if body.active and 0 <= body.known < body.incarnation_id:
            if body.error == "INVALID_INCARNATION_ID":
                yield violated(body.broker_id, body.incarnation_id)


@reading("HB-14", MetadataHeartbeatAnswered)
def settles(history: History) -> Iterator[Word]:
    """A valid heartbeat that targets stopping (or active) moves the broker to that state, and the
    response carries it."""
    for at in history.of(MetadataHeartbeatAnswered):
        body = at.body
        wanted = {2: "Active", 3: "Stopping"}.get(body.target_state)
        if body.error == "NONE" and wanted is not None and body.state != wanted:
            yield violated(body.broker_id, body.state)


@reading("HB-17", IsrChangeJudged)
def not_the_controller(history: History) -> Iterator[Word]:
    """A recipient that is not the current controller answers IsrChange with NOT_CONTROLLER."""
    for at in history.of(IsrChangeJudged):
        if not at.body.active and at.body.error != "NOT_CONTROLLER":
            yield violated(at.process, at.body.error)


@reading("HB-18", IsrChangeJudged)
def wrong_incarnation(history: History) -> Iterator[Word]:
    """An IsrChange with the wrong incarnation id is answered INVALID_INCARNATION_ID."""
    for at in history.of(IsrChangeJudged):
        body = at.body
        if body.active and body.incarnation_id != body.known and body.error == "NONE":
            yield violated(body.broker_id, body.incarnation_id)


@reading("HB-19", IsrChangeJudged)
def results_in_order(history: History) -> Iterator[Word]:
    """Results come one per requested partition."""
    for at in history.of(IsrChangeJudged):
        body = at.body
        if body.error == "NONE" and len(body.results) != len(body.partitions):
            yield violated(at.process, body.broker_id)


@reading("HB-20", IsrChangeJudged)
def no_empty_isr(history: History) -> Iterator[Word]:
    """An ISR that is empty, or lacks the leader, gets INVALID_REQUEST for that partition."""
    for at in history.of(IsrChangeJudged):
        body = at.body
        if body.error != "NONE":
            continue
        for name, isr, result in zip(body.partitions, body.isrs, body.results, strict=False):
            members = [int(one) for one in isr.split(",") if one]
            if result == "NONE" and (not members or body.broker_id not in members):
                yield violated(name, body.broker_id)


@reading("HB-27", MetadataHeartbeatAnswered)
def heartbeat_elsewhere(history: History) -> Iterator[Word]:
    """A MetadataHeartbeat to a node that is not the controller gets NOT_CONTROLLER."""
    for at in history.of(MetadataHeartbeatAnswered):
        if not at.body.active and at.body.error != "NOT_CONTROLLER":
            yield violated(at.process, at.body.error)


@reading("HB-23", BrokerDeclared)
def legacy_registration(history: History) -> Iterator[Word]:
    """A version-4 registration is active while its znode exists, heartbeats or not."""
    for at in history.of(BrokerDeclared):
        if at.body.version == 4 and at.body.new == "Inactive":
            yield violated(at.body.broker_id)


@reading("HB-09", BrokerDeclared)
def inactive_after_silence(history: History) -> Iterator[Word]:
    """The controller declares a broker inactive once controller.heartbeat.timeout.ms passed without
    a heartbeat from it."""
    for at in history.of(BrokerDeclared):
        body = at.body
        if body.new == "Inactive" and body.silent_ms < body.timeout_ms:
            yield undecided(body.broker_id)
