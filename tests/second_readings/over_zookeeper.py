"""Second readings of KIP-343 and KIP-380: heartbeats, incarnations, requests of a controller.

Of each answer its node tells what was asked, what it knew, and what it said. So many a clause is
broken by one event alone, whatever others tell; and where a node tells what it knows in other
events, too, it is held to these as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from fencepost import NodeStarted, NodeStopped, ProcessExited, ProcessSpawned
from fencepost_clusters.zookeeper.events import SessionExpired, session_name
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    BrokerStateChanged,
    BrokerStopping,
    ControlledShutdownAnswered,
    ControllerBegan,
    ControllerEnded,
    ControlRequestAnswered,
    ControlRequestSent,
    FetchServed,
    FollowingStarted,
    IsrChangeAnswered,
    IsrChangeJudged,
    LeadershipStarted,
    LogAppended,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    PartitionCommitted,
    ProbeCompleted,
    ReplicaStopped,
    SessionChanged,
)
from second_readings.clients import deleted
from second_readings.quorum import MS, answered_while_fenced, before
from second_readings.reading import At, History, Word, reading, undecided, violated

OF_GENERATION = ("LeaderAndIsr", "UpdateMetadata", "StopReplica")
STATES = {2: "Active", 3: "Stopping"}
"""The states that a heartbeat may target, by their numbers."""


def registered(history: History, at: At) -> At | None:
    """The newest registration that a process told of before an event."""
    return next(before(history, at, BrokerRegistered), None)


def otherwise_told(history: History, at: At) -> bool:
    """Whether the sender of a control request tells another one than its receiver read: which of
    the two is wrong, nobody else knows."""
    cause = history.events[at.place].cause
    for one in history.of(ControlRequestSent) if cause is not None and cause.request else ():
        if (one.process, one.body.correlation) == (cause.process, cause.seq):
            told = one.body.broker_epoch, one.body.controller_epoch
            read = at.body.request_epoch, at.body.controller_epoch
            named = {*getattr(at.body, "partitions", one.body.partitions)}
            return told != read or named != {*one.body.partitions}
    return False


def role_by_refused(history: History, at: At) -> bool:
    """Whether a process that refuses a LeaderAndIsr takes a role, at about that time, that this may
    give."""
    return at.body.api == "LeaderAndIsr" and any(
        one.process == at.process
        and f"{one.body.topic}-{one.body.partition}" in at.body.partitions
        and abs(one.at_ns - at.at_ns) < 1_000 * MS
        for one in history.of(LeadershipStarted, FollowingStarted)
    )


def exited(history: History, at: At) -> bool:
    """Whether the harness saw the end of a process before it told of something: it did that before,
    or somebody else tells it."""
    return any(
        one.body.ended == at.process for one in history.of(ProcessExited) if one.place < at.place
    )


def succeeded(history: History, at: At) -> bool:
    """Whether another controller began before, in a higher epoch: whether this one knows is not
    told."""
    return any(
        one.body.epoch > at.body.controller_epoch
        for one in history.of(ControllerBegan)
        if one.place < at.place
    )


def in_term(history: History, at: At) -> bool:
    """Whether a process has begun to be the controller, and has not ended, by its own word."""
    turn = next(before(history, at, ControllerBegan, ControllerEnded), None)
    return turn is not None and isinstance(turn.body, ControllerBegan)


# ------------------------------------------------------------------------- control requests (380)


@reading(
    *("BE-02", ControlRequestSent, ControlRequestAnswered, BrokerRegistered),
    *(LeadershipStarted, FollowingStarted, BrokerStateChanged),
)
def rejects_former_generations(history: History) -> Iterator[Word]:
    """A broker rejects (STALE_BROKER_EPOCH) any LeaderAndIsr, UpdateMetadata or StopReplica whose
    broker epoch is smaller than its own; an equal or larger one is accepted."""
    for at in history.of(ControlRequestAnswered):
        body = at.body
        if body.api not in OF_GENERATION:
            continue
        refused = body.error != "NONE" and role_by_refused(history, at)
        if otherwise_told(history, at) or refused:
            yield undecided(at.process, body.api)
            continue
        if body.request_epoch < 0:
            continue
        if body.error == "NONE" and body.request_epoch < body.broker_epoch:
            yield violated(at.process, body.api, body.request_epoch)
        stale = body.error == "STALE_BROKER_EPOCH"
        if stale and 0 <= body.broker_epoch <= body.request_epoch:
            # One that has lost its id is no broker any more, and may refuse what it likes.
            over = any(
                one.body.reason == "taken_over" for one in before(history, at, BrokerStateChanged)
            )
            yield (undecided if over else violated)(at.process, body.api, "refused")
        known = registered(history, at)
        if known is None:
            continue
        former = body.request_epoch < known.body.broker_epoch
        if former and body.error == "NONE":
            # It may have registered while it worked on it.
            sure = known.at_ns < at.at_ns - body.handled_ns
            yield (violated if sure else undecided)(at.process, body.api, "registered")
        if stale and not former:
            yield undecided(at.process, body.api, "refused")  # it may have registered since


@reading("BE-03", ControlRequestSent, ControlRequestAnswered, ReplicaStopped, BrokerRegistered)
def stops_for_this_generation(history: History) -> Iterator[Word]:
    """A StopReplica of the former generation never takes a replica of the bounced broker
    offline."""
    for at in history.of(ReplicaStopped):
        known = registered(history, at)
        if known is not None and 0 <= at.body.request_epoch < known.body.broker_epoch:
            word = undecided if otherwise_told(history, at) else violated
            yield word(at.process, at.body.topic, at.body.partition)
    for at in history.of(ControlRequestAnswered):
        body = at.body
        former = 0 <= body.request_epoch < body.broker_epoch or otherwise_told(history, at)
        if former and (body.api, body.error) == ("StopReplica", "NONE"):
            yield undecided(at.process, *body.partitions)  # whether it was open at all


@reading(
    *("BE-04", ControlledShutdownAnswered, MetadataHeartbeatAnswered, ControlRequestSent),
    *(BrokerStopping, BrokerRegistered),
)
def rejects_former_shutdowns(history: History) -> Iterator[Word]:
    """The controller rejects a ControlledShutdown whose broker epoch is smaller than the one it has
    cached, and sends no control request because of it."""
    stopping = {at.process for at in history.of(BrokerStopping)}
    asked = {at.body.broker_id for at in history.of(BrokerStopping)}
    for at in history.of(ControlRequestSent):
        stops = at.body.api == "StopReplica" and not at.body.deletes
        meant = {
            one.process
            for one in history.of(BrokerRegistered)
            if one.body.broker_id == at.body.broker_id
            and one.body.broker_epoch == at.body.broker_epoch
        }
        if stops and (at.body.broker_id not in asked or (meant and not meant & stopping)):
            yield undecided(at.process, at.body.broker_id)  # what it sent that for
    for at in history.of(ControlledShutdownAnswered):
        body = at.body
        if body.error != "NONE" or body.request_epoch < 0:
            continue
        if body.request_epoch < body.known_epoch:
            yield violated(at.process, body.broker_id, body.request_epoch)
        adopted = [
            one.body.incarnation_id
            for one in before(history, at, MetadataHeartbeatAnswered)
            if one.body.broker_id == body.broker_id
            and (one.body.error, one.body.controller_epoch) == ("NONE", body.controller_epoch)
        ]
        if body.request_epoch < max(adopted, default=-1):
            yield undecided(at.process, body.broker_id, "adopted")


@reading(
    *("BE-07", ControlRequestSent, ControlRequestAnswered, BrokerRegistered, PartitionCommitted),
    *(LeadershipStarted, FollowingStarted),
)
def first_is_for_this_generation(history: History) -> Iterator[Word]:
    """The first LeaderAndIsr that a started broker processes is addressed to this generation and
    holds every partition that the broker hosts; no later one is addressed to a former one."""
    seen: set[str] = set()
    for at in history.of(ControlRequestAnswered):
        body = at.body
        if body.api != "LeaderAndIsr":
            continue
        if body.error != "NONE":
            if role_by_refused(history, at):
                yield undecided(at.process, *body.partitions)
            continue
        first = at.process not in seen
        seen.add(at.process)
        if otherwise_told(history, at) or first != body.first:
            yield undecided(at.process, "first")
            continue
        known = registered(history, at)
        own = max(body.broker_epoch, -1 if known is None else known.body.broker_epoch)
        if 0 <= body.request_epoch < own:
            # It may have registered while it worked on it.
            yield (undecided if body.handled_ns else violated)(at.process, body.request_epoch)
        hosted = {
            f"{one.body.topic}-{one.body.partition}"
            for one in history.of(PartitionCommitted)
            if one.place < at.place and body.broker_id in one.body.replicas
        }
        if first and not hosted <= {*body.partitions}:
            yield undecided(at.process, *body.partitions)  # which of them it was given since


@reading("BE-08", ControlRequestSent, ControlRequestAnswered)
def rejects_former_controllers(history: History) -> Iterator[Word]:
    """A control request with a controller epoch lower than the highest that the broker has seen is
    rejected (STALE_CONTROLLER_EPOCH)."""
    for at in history.of(ControlRequestAnswered):
        body = at.body
        if body.error != "NONE":
            continue
        if any(otherwise_told(history, one) for one in before(history, at, ControlRequestAnswered)):
            yield undecided(at.process, body.api)
        if otherwise_told(history, at):
            yield undecided(at.process, body.api)
            continue
        if body.controller_epoch < body.seen_epoch:
            yield violated(at.process, body.api, body.controller_epoch)
            continue
        earlier = [
            one
            for one in before(history, at, ControlRequestAnswered)
            if one.body.error == "NONE"
            and one.body.controller_epoch > body.controller_epoch
            and not otherwise_told(history, one)
        ]
        if earlier:
            # It may have seen the other one while it worked on this one.
            sure = earlier[-1].at_ns < at.at_ns - body.handled_ns
            yield (violated if sure else undecided)(at.process, body.api, "obeyed before")


@reading("BE-10", ControlRequestAnswered)
def accepts_without_epoch(history: History) -> Iterator[Word]:
    """During a double roll, requests in versions without a broker epoch are accepted."""
    for at in history.of(ControlRequestAnswered):
        body = at.body
        if body.request_epoch == -1 and body.error == "STALE_BROKER_EPOCH":
            yield violated(at.process, body.api)


# ------------------------------------------------------------------------------ heartbeats (343)


@reading("HB-01", BrokerRegistered, MetadataHeartbeatSent, MetadataHeartbeatAnswered)
def incarnations_grow(history: History) -> Iterator[Word]:
    """A broker's incarnation id is the czxid of its registration: unique, strictly increasing over
    successive registrations of one broker id."""
    newest: dict[int, At] = {}
    for at in history.of(BrokerRegistered):
        body = at.body
        if body.broker_epoch < 0:
            continue
        known = newest.get(body.broker_id)
        if known is None or body.broker_epoch > known.body.broker_epoch:
            newest[body.broker_id] = at
        elif body.broker_epoch == known.body.broker_epoch or known.process == at.process:
            yield violated(body.broker_id, body.broker_epoch)
        else:
            yield undecided(body.broker_id, body.broker_epoch)  # told late
    for at in history.of(MetadataHeartbeatSent):
        known = registered(history, at)
        if known is None or known.body.broker_epoch < 0:
            yield undecided(at.process)
        elif at.body.incarnation_id != known.body.broker_epoch:
            yield violated(at.process, at.body.incarnation_id)
    for at in history.of(MetadataHeartbeatAnswered):
        own = [one for one in history.of(BrokerRegistered) if one.process == at.body.client]
        if own and own[-1].body.broker_epoch != at.body.incarnation_id:
            yield undecided(at.body.client, at.body.incarnation_id)  # by who answers it


def answers(history: History) -> Iterator[At]:
    """The heartbeats that a node answered as the controller."""
    for at in history.of(MetadataHeartbeatAnswered):
        if at.body.active:
            yield at


def adopted(history: History, at: At) -> int:
    """The highest incarnation id of a broker that the same controller accepted before, in the same
    epoch (-1: none)."""
    return max(
        (
            one.body.incarnation_id
            for one in before(history, at, MetadataHeartbeatAnswered)
            if one.body.broker_id == at.body.broker_id
            and (one.body.error, one.body.active) == ("NONE", True)
            and one.body.controller_epoch == at.body.controller_epoch
        ),
        default=-1,
    )


@reading(
    *("HB-12", MetadataHeartbeatAnswered, MetadataHeartbeatReceived, BrokerRegistered),
    *(BrokerDeclared, ControllerBegan),
)
def old_incarnations_refused(history: History) -> Iterator[Word]:
    """A heartbeat with an incarnation id lower than the controller's for that broker id is answered
    INVALID_INCARNATION_ID, and changes nothing."""
    for at in answers(history):
        body = at.body
        if body.error == "NONE" and body.incarnation_id < max(body.known, adopted(history, at)):
            yield violated(at.process, body.broker_id, body.incarnation_id)
        elif body.incarnation_id < body.known and body.error != "INVALID_INCARNATION_ID":
            yield undecided(at.process, body.broker_id, body.error)  # it may be malformed, too
        took = next(
            (
                one.body
                for one in before(history, at, MetadataHeartbeatAnswered, ControllerBegan)
                if isinstance(one.body, ControllerBegan)
                or (one.body.broker_id, one.body.error) == (body.broker_id, "NONE")
            ),
            None,
        )
        newer = getattr(took, "incarnation_id", -1)
        if body.error == "NONE" and body.incarnation_id < newer:
            yield undecided(at.process, body.broker_id, "in two epochs")
        # The newest that it has declared in this term, whatever it says that it knew.
        declared = next(
            (
                one.body
                for one in before(history, at, BrokerDeclared)
                if one.body.broker_id == body.broker_id
                and one.body.controller_epoch == body.controller_epoch
            ),
            None,
        )
        newest = -1 if declared is None else declared.incarnation_id
        if body.error == "NONE" and body.incarnation_id < newest and declared is not None:
            gone = declared.new == "Absent"
            yield (undecided if gone else violated)(at.process, body.broker_id, "declared")
    for at in history.of(MetadataHeartbeatReceived):
        newer = any(
            one.body.broker_epoch > at.body.incarnation_id
            for one in history.of(BrokerRegistered)
            if one.place < at.place and one.body.broker_id == at.body.broker_id
        )
        if newer and at.body.error == "NONE":
            yield undecided(at.process, at.body.broker_id)  # when its controller found the other


@reading(
    *("HB-13", MetadataHeartbeatAnswered, BrokerDeclared, ControllerBegan, ControllerEnded),
    *(SessionChanged, ProcessExited, NodeStopped),
)
def new_incarnations_adopted(history: History) -> Iterator[Word]:
    """A heartbeat with a higher incarnation id is valid; the controller adopts that id, and it
    counts as a bounce: the former process is declared absent, or the new one is met."""
    for at in answers(history):
        body = at.body
        if body.error == "INVALID_INCARNATION_ID" and body.incarnation_id > body.known >= 0:
            yield violated(at.process, body.broker_id, body.incarnation_id)
        elif 0 <= body.known < adopted(history, at):
            yield undecided(at.process, body.broker_id, "adopted")  # its znode may be gone
        elif body.error == "INVALID_INCARNATION_ID":
            told = [
                one.body.incarnation_id
                for one in before(history, at, BrokerDeclared)
                if one.body.broker_id == body.broker_id
            ]
            if told and 0 <= told[0] < body.incarnation_id:
                yield undecided(at.process, body.broker_id, "known")  # by its answer alone
    for at in history.of(MetadataHeartbeatAnswered, BrokerDeclared):
        body = at.body
        if isinstance(body, MetadataHeartbeatAnswered) and not (
            body.active and body.error == "NONE"
        ):
            continue
        own = [one for one in before(history, at, BrokerDeclared, ControllerBegan)]
        own = [*takewhile(lambda one: isinstance(one.body, BrokerDeclared), own)]
        own = [one for one in own if one.body.broker_id == body.broker_id]
        if not own or not 0 <= own[0].body.incarnation_id < body.incarnation_id:
            continue
        if isinstance(body, BrokerDeclared) and "Absent" in (own[0].body.new, body.new):
            continue  # the bounce itself
        later = [
            one
            for one in history.of(BrokerDeclared)
            if one.place > at.place and one.process == at.process
        ]
        met = any(one.body.broker_id == body.broker_id for one in later)
        ends = any(
            one.place > at.place and getattr(one.body, "ended", one.process) == at.process
            for one in history.of(
                *(ControllerBegan, ControllerEnded, SessionChanged, ProcessExited, NodeStopped)
            )
        )
        stood = history.end.stalled_ns(at.at_ns, history.end.ended_at_ns, at.process)
        waited = (
            history.end.ended_at_ns - at.at_ns - stood > own[0].body.timeout_ms * MS + 1_000 * MS
        )
        sure = waited and not met and not ends and not history.faults
        yield (violated if sure else undecided)(at.process, body.broker_id, "no bounce")


@reading(
    *("HB-14", MetadataHeartbeatAnswered, MetadataHeartbeatSent, MetadataHeartbeatReceived),
    BrokerDeclared,
)
def moves_to_its_target(history: History) -> Iterator[Word]:
    """A valid heartbeat that targets stopping (or active) moves the broker to that state, and the
    response carries the state the controller settled on."""
    for at in answers(history):
        body = at.body
        wanted = STATES.get(body.target_state)
        if body.error != "NONE" or wanted is None:
            continue
        if body.state == wanted:
            declared = next(
                (
                    one.body
                    for one in before(history, at, BrokerDeclared)
                    if one.body.broker_id == body.broker_id
                ),
                None,
            )
            if declared is not None and declared.new != body.state:
                yield undecided(at.process, body.broker_id, "declared")  # what it settled on
            continue
        # It may settle on what it is told elsewhere: a broker without a registration is inactive.
        sure = body.state in STATES.values() and body.known == body.incarnation_id
        yield (violated if sure else undecided)(at.process, body.broker_id, body.state)
    for at in history.of(MetadataHeartbeatReceived):
        asked = next(before(history, at, MetadataHeartbeatSent), None)
        other = asked is not None and at.body.state != asked.body.target_state
        if at.body.error == "NONE" and other:
            yield undecided(at.process, at.body.state)  # which heartbeat that answers


@reading(
    *("HB-15", MetadataHeartbeatAnswered, BrokerDeclared, BrokerRegistered),
    MetadataHeartbeatReceived,
)
def malformed_refused(history: History) -> Iterator[Word]:
    """A heartbeat with a negative broker id, for a registration without a valid endpoint, or with
    an invalid target state, is answered INVALID_REQUEST and changes nothing."""
    nowhere = {at.process for at in history.of(BrokerRegistered) if not at.body.reachable}
    for at in history.of(MetadataHeartbeatAnswered, MetadataHeartbeatReceived):
        process = getattr(at.body, "client", at.process)
        if at.body.error == "NONE" and process in nowhere:
            yield undecided(process)  # that it has no address is its own word
    for at in answers(history):
        body = at.body
        if body.error == "NONE" and (body.broker_id < 0 or body.target_state not in range(4)):
            yield violated(at.process, body.broker_id, body.target_state)
        elif body.error == "NONE" and body.target_state not in STATES:
            yield undecided(at.process, body.broker_id, body.target_state)
        malformed = body.broker_id < 0 or body.target_state not in range(4)
        if malformed and body.error not in ("NONE", "INVALID_REQUEST"):
            yield undecided(at.process, body.broker_id, body.error)
    for at in history.of(BrokerDeclared):
        if at.body.broker_id < 0:
            yield violated(at.process, at.body.broker_id, "declared")
        elif at.body.reason == "heartbeat" and at.body.new not in STATES.values():
            yield undecided(at.process, at.body.broker_id, at.body.new)  # what asked for that


def session_over(history: History, at: At) -> Iterator[Word]:
    """Whether ZooKeeper had ended the session of a process that acts as the controller. What it
    watches it must have heard of within two seconds, unless it began anew since."""
    began = next((one.place for one in before(history, at, ControllerBegan)), -1)
    for one in history.of(SessionExpired):
        mine = [
            own.body.session
            for own in history.of(BrokerRegistered, SessionChanged)
            if own.process == at.process and own.place < one.place
            if isinstance(own.body, BrokerRegistered) or own.body.state == "connected"
        ]
        if one.place < at.place and mine and one.body.session == session_name(mine[-1]):
            stood = history.end.stalled_ns(one.at_ns, at.at_ns, at.process) > 0
            sure = began >= 0 and one.place > began and at.at_ns > one.at_ns + 2_000 * MS
            yield (violated if sure and not stood else undecided)(at.process, "session")


@reading(
    *("HB-27", MetadataHeartbeatAnswered, ControllerBegan, ControllerEnded, ProcessExited),
    *(SessionExpired, SessionChanged, BrokerRegistered),
)
def answers_as_controller(history: History) -> Iterator[Word]:
    """A MetadataHeartbeat to a node that is not the controller gets NOT_CONTROLLER; a controller
    that loses its session stops answering as one."""
    for at in history.of(MetadataHeartbeatAnswered):
        body = at.body
        if body.error != "NOT_CONTROLLER" and not (body.active and in_term(history, at)):
            yield violated(at.process, body.broker_id, body.error)
        elif in_term(history, at) and body.error == "NOT_CONTROLLER":
            yield undecided(at.process, body.broker_id)  # its own words contradict each other
        elif body.active and (body.error == "NOT_CONTROLLER" or succeeded(history, at)):
            yield undecided(at.process, body.broker_id)
        elif exited(history, at):
            yield undecided(at.process, body.broker_id, "exited")
        if body.error != "NOT_CONTROLLER":
            yield from session_over(history, at)


@reading(
    *("HB-07", BrokerStateChanged, FetchServed, LogAppended, ProbeCompleted),
    *(NodeStarted, ProcessSpawned),
)
def fenced_accepts_nothing(history: History) -> Iterator[Word]:
    """A fenced broker completes the client requests that it already has and accepts no new ones."""
    for at in history.of(FetchServed, LogAppended):
        if isinstance(at.body, LogAppended) and not at.body.as_leader:
            continue
        # Since it was active last: a fenced one that begins anew, or shuts down, is so still.
        states = [*before(history, at, BrokerStateChanged)]
        since = [*takewhile(lambda one: one.body.new != "ACTIVE", states)]
        fenced = [one for one in since if one.body.new == "FENCED"]
        if not fenced:
            continue
        was_active = len(since) < len(states)
        new = isinstance(at.body, LogAppended) or at.at_ns - fenced[-1].at_ns >= 1_000 * MS
        yield (violated if new and was_active else undecided)(at.process, type(at.body).__name__)
    yield from answered_while_fenced(history)


@reading(
    *("HB-11", MetadataHeartbeatReceived, ControllerBegan, BrokerDeclared, BrokerStateChanged),
)
def waits_longer_than_the_controller(history: History) -> Iterator[Word]:
    """The broker-side timeout is longer than the controller-side one."""
    theirs = [at.body.heartbeat_timeout_ms for at in history.of(ControllerBegan)]
    for at in history.of(MetadataHeartbeatReceived):
        if theirs and at.body.timeout_ms <= min(theirs):
            yield (violated if at.body.timeout_ms <= max(theirs) else undecided)(at.process)
    for at in history.of(BrokerStateChanged):
        if (at.body.old, at.body.new) == ("ACTIVE", "FENCED"):  # why it did is its own word
            declared = [
                one.body.new
                for one in history.of(BrokerDeclared)
                if one.place < at.place and one.body.broker_id == at.body.broker_id
            ]
            if declared and declared[-1] in STATES.values():
                yield undecided(at.process)  # whether it was wholly cut off from that controller


# ------------------------------------------------------------------------------ ISR changes (343)


@reading(
    *("HB-17", IsrChangeJudged, ControllerBegan, ControllerEnded, ProcessExited),
    *(SessionExpired, SessionChanged, BrokerRegistered),
)
def judged_by_the_controller(history: History) -> Iterator[Word]:
    """A recipient that is not the current controller answers IsrChange with NOT_CONTROLLER."""
    for at in history.of(IsrChangeJudged):
        body = at.body
        if body.error != "NOT_CONTROLLER" and not (body.active and in_term(history, at)):
            yield violated(at.process, body.broker_id, body.error)
        elif body.error != "NOT_CONTROLLER" and (exited(history, at) or succeeded(history, at)):
            yield undecided(at.process, body.broker_id)
        if body.error != "NOT_CONTROLLER":
            yield from session_over(history, at)


@reading(
    *("HB-18", IsrChangeJudged, MetadataHeartbeatAnswered, BrokerDeclared, BrokerRegistered),
    IsrChangeAnswered,
)
def of_its_incarnation(history: History) -> Iterator[Word]:
    """An IsrChange with the wrong incarnation id is answered INVALID_INCARNATION_ID."""
    for at in history.of(IsrChangeAnswered):
        own = registered(history, at)
        newer = own is not None and any(
            one.body.broker_id == own.body.broker_id
            and one.body.broker_epoch > own.body.broker_epoch
            for one in history.of(BrokerRegistered)
            if one.place < at.place
        )
        if newer and at.body.error == "NONE":
            yield undecided(at.process)  # when its controller found the other one
    for at in history.of(IsrChangeJudged):
        body = at.body
        if not body.active or body.error != "NONE":
            continue
        if body.incarnation_id < body.known:
            yield violated(at.process, body.broker_id, body.incarnation_id)
        elif body.known != body.incarnation_id:
            yield undecided(at.process, body.broker_id)  # one that it has just heard of
        elif body.incarnation_id < adopted(history, at):
            yield violated(at.process, body.broker_id, "adopted")
        declared = [
            one.body.incarnation_id
            for one in before(history, at, BrokerDeclared)
            if one.body.broker_id == body.broker_id
        ]
        if declared and declared[0] != body.incarnation_id:
            yield undecided(at.process, body.broker_id, "declared")  # it may have adopted a newer


def results(at: At) -> Sequence[tuple[str, frozenset[int], int, str]]:
    """The partitions of an IsrChange that was judged: name, ISR, leader epoch, result."""
    body = at.body
    rows = zip(body.partitions, body.isrs, body.leader_epochs, body.results, strict=False)
    return [
        (name, frozenset(int(one) for one in isr.split(",") if one), epoch, result)
        for name, isr, epoch, result in rows
    ]


def newest_record(history: History, at: At, name: str) -> PartitionCommitted | None:
    """The newest record of a partition that the same process told before an event."""
    found = [
        one.body
        for one in before(history, at, PartitionCommitted)
        if f"{one.body.topic}-{one.body.partition}" == name
    ]
    return max(found, key=lambda body: body.offset, default=None)


@reading("HB-19", IsrChangeJudged, IsrChangeAnswered, PartitionCommitted)
def one_result_each(history: History) -> Iterator[Word]:
    """Results come one per requested partition; a partition whose requester is no longer its
    leader, or whose leader epoch is stale, gets NOT_LEADER_FOR_PARTITION."""
    for at in history.of(IsrChangeAnswered):
        written = {
            error
            for one in history.of(IsrChangeJudged)
            if one.body.client == at.process and one.place < at.place
            for place, error in (
                *zip(one.body.partitions, one.body.results, strict=False),
                ("", one.body.error),
            )
            # For this partition, or for the whole request.
            if place == f"{at.body.topic}-{at.body.partition}" or (not place and error != "NONE")
        }
        if at.body.error not in written:
            yield undecided(at.process, at.body.error)  # who wrote it is not told
    for at in history.of(IsrChangeJudged):
        body = at.body
        if body.error != "NONE":
            continue
        if len(body.results) != len(body.partitions):
            yield violated(at.process, *body.partitions)
        for name, _, epoch, result in results(at):
            known = newest_record(history, at, name)
            if result != "NONE":
                continue
            others = [
                one.body.leader_epoch
                for one in history.of(PartitionCommitted)
                if f"{one.body.topic}-{one.body.partition}" == name and one.place < at.place
            ]
            if max(others, default=-1) > epoch:
                yield undecided(at.process, name, "by others")  # whether it knew
            if known is None:
                continue
            if known.leader != body.broker_id or known.leader_epoch > epoch:
                # Of a later epoch, the record is not told.
                sure = not deleted(history, known.topic) and known.leader_epoch >= epoch
                yield (violated if sure else undecided)(at.process, name)


@reading(
    *("HB-20", IsrChangeJudged, PartitionCommitted, BrokerDeclared),
    *(ControllerBegan, ControllerEnded),
)
def valid_isrs_only(history: History) -> Iterator[Word]:
    """An ISR that is empty, lacks the leader, or names a broker that is no replica, gets
    INVALID_REQUEST for that partition."""
    for at in history.of(IsrChangeJudged):
        body = at.body
        if body.error != "NONE":
            continue
        for name, isr, _, result in results(at):
            if result != "NONE":
                continue
            if body.broker_id not in isr:
                yield (violated if in_term(history, at) else undecided)(at.process, name)
            known = newest_record(history, at, name)
            if known is not None and not isr <= {*known.replicas}:
                sure = not deleted(history, known.topic)
                yield (violated if sure else undecided)(at.process, name, "no replica")
            began = next((one.place for one in before(history, at, ControllerBegan)), -1)
            live = {
                one.body.broker_id
                for one in before(history, at, BrokerDeclared)
                if one.body.new in STATES.values() and one.place > began
            }
            if known is not None and not isr <= live:
                yield undecided(at.process, name, "not live")  # it may have been a member before
            # By the newest word of its own term, of a broker that is added.
            newest = {
                one.body.broker_id: one.body.new
                for one in reversed([*before(history, at, BrokerDeclared)])
                if one.place > began
            }
            # By the time of the answer it may be stored: then the one before it counts.
            former = known
            if known is not None and {*known.isr} == isr:
                earlier = [
                    one.body
                    for one in history.of(PartitionCommitted)
                    if f"{one.body.topic}-{one.body.partition}" == name
                    and one.place < at.place
                    and one.body.offset < known.offset
                ]
                former = max(earlier, key=lambda body: body.offset, default=None)
            for added in isr - {*former.isr} if former is not None else ():
                if newest.get(added, "Active") not in STATES.values():
                    yield (violated if in_term(history, at) else undecided)(at.process, name, added)


@reading("HB-21", IsrChangeJudged, PartitionCommitted)
def none_is_stored(history: History) -> Iterator[Word]:
    """A partition result of NONE means that the ISR change has been applied and stored."""
    for at in history.of(IsrChangeJudged):
        for name, isr, epoch, result in results(at) if at.body.error == "NONE" else ():
            if result != "NONE":
                continue
            same = [
                one
                for one in history.of(PartitionCommitted)
                if f"{one.body.topic}-{one.body.partition}" == name and {*one.body.isr} == isr
            ]
            known = newest_record(history, at, name)
            if known is None:
                yield undecided(at.process, name, "not told")
            elif {*known.isr} != isr:
                # Nobody ever tells of that ISR, and the same leadership has another one.
                led = (known.leader, known.leader_epoch) == (at.body.broker_id, epoch)
                sure = led and not same and history.end.complete
                sure = sure and not deleted(history, known.topic)
                yield (violated if sure else undecided)(at.process, name)
            elif not any(one.place < at.place and one.body.leader_epoch >= epoch for one in same):
                yield undecided(at.process, name, "in an earlier epoch")
