"""Second readings of KIP-631 and of the registration draft: votes, records, leases, states."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise, takewhile
from signal import SIGINT, SIGTERM

from msgspec.structs import replace

from fencepost import NodeStarted, ProcessAsked, ProcessExited, ProcessSpawned
from fencepost.events.names import slot_of
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    BrokerStopping,
    ChangeAnswered,
    ControllerElected,
    ControllerFollowed,
    ControllerResigned,
    ElectionStarted,
    FeatureFinalized,
    FetchServed,
    FollowerFetched,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatSent,
    IsrChangeAnswered,
    LeaseExpired,
    LeaseGranted,
    LogAppended,
    MetadataCommitted,
    MetadataDigest,
    MetadataTruncated,
    MetricsReported,
    PartitionCommitted,
    ProbeCompleted,
    ProduceAnswered,
    RecoveryEnded,
    RecoveryStarted,
    SnapshotLoaded,
    SnapshotStored,
    StateReverted,
    TopicCommitted,
    TopicMarked,
    VoteAnswered,
)
from fencepost_kafka.vocabulary import FOR_CLIENTS
from second_readings.reading import NEVER, At, History, Word, reading, undecided, violated

MS = 1_000_000
SERVED = (FetchServed, ProduceAnswered, LogAppended)
RECORDS = (
    *(BrokerCommitted, PartitionCommitted, TopicCommitted),
    *(BrokerDeleted, FeatureFinalized, TopicMarked),
)


def before(history: History, at: At, *kinds: type) -> Iterator[At]:
    """The events of the same process before another one, the newest first."""
    for one in reversed(history.of(*kinds)):
        if one.process == at.process and one.place < at.place:
            yield one


# ------------------------------------------------------------------------------ votes and records


@reading(
    "QC-07",
    *(ControllerElected, ControllerFollowed, ElectionStarted, VoteAnswered, MetadataCommitted),
)
def one_controller(history: History) -> Iterator[Word]:
    """There is at most one active controller in each epoch, a voter gives one vote in an epoch,
    and a new leader holds every committed record."""
    lost = history.lost_data
    elected: dict[int, set[str]] = {}
    for at in history.of(ControllerElected):
        elected.setdefault(at.body.epoch, set()).add(at.process)
    for epoch, processes in elected.items():
        if len(processes) > 1:
            yield (undecided if lost else violated)("epoch", epoch)
    for epoch in {at.body.epoch for at in history.of(ControllerFollowed)}:
        following = [at for at in history.of(ControllerFollowed) if at.body.epoch == epoch]
        controllers = {own_id(slot_of(process)) for process in elected.get(epoch, ())}
        for leader in {at.body.leader for at in following if at.body.leader >= 0}:
            # One node may be wrong; two that follow another one have seen it lead.
            if len({at.process for at in following if at.body.leader == leader}) > 1:
                controllers.add(leader)
        if len(controllers) > 1 and len(elected.get(epoch, ())) < 2:
            yield (undecided if lost else violated)("epoch", epoch)
    votes: dict[tuple[str, int], set[object]] = {}
    for at in history.of(VoteAnswered, ElectionStarted):
        own = isinstance(at.body, ElectionStarted)
        if own or at.body.granted:
            voter = slot_of(at.process)
            candidate = own_id(voter) if own else at.body.candidate
            votes.setdefault((voter, at.body.epoch), set()).add(candidate)
    for (voter, epoch), candidates in votes.items():
        if len(candidates) > 1:
            yield (undecided if lost else violated)("vote", voter, epoch)
    yield from two_at_one_offset(history, MetadataCommitted)
    for at in history.of(ControllerElected):
        for record in history.of(MetadataCommitted):
            # A record of an earlier epoch that anybody knows to be committed was so before.
            another = record.body.epoch > at.body.last_epoch >= 0
            lacks = another or record.body.offset >= at.body.log_end
            if record.body.epoch < at.body.epoch and lacks:
                yield (undecided if lost else violated)("lacks", at.process, record.body.offset)


def own_id(slot: str) -> object:
    """The node id of a controller in a slot such as controller-2: 102 here."""
    number = slot.rpartition("-")[2]
    return 100 + int(number) if slot.startswith("controller-") and number.isdigit() else slot


def two_at_one_offset(history: History, kind: type, role: str = "") -> Iterator[Word]:
    """Where nodes, or those of one role, have different contents at one offset of the metadata."""
    digests: dict[int, set[tuple[str, int]]] = {}
    roles = {at.process: at.body.role for at in history.of(NodeStarted)}
    for at in history.of(kind):
        if role and roles.get(at.process) != role:
            continue
        written = at.body.digest, getattr(at.body, "epoch", 0)
        digests.setdefault(at.body.offset, set()).add(written)
    for offset, found in digests.items():
        if len(found) > 1:
            yield (undecided if history.lost_data else violated)(kind.__name__, offset)


@reading("QC-06", NodeStarted, MetadataDigest, *RECORDS)
def one_log(history: History) -> Iterator[Word]:
    """Cluster metadata is one log, of which the followers of its leader hold the state: all nodes
    read the same record at an offset, and controllers have the same state below it. (That its
    records are the same is QC-07.)"""
    yield from two_at_one_offset(history, MetadataDigest, "controller")
    read: dict[int, set[object]] = {}
    for at in history.of(*RECORDS):
        plain = replace(at.body, role="") if hasattr(at.body, "role") else at.body
        read.setdefault(at.body.offset, set()).add(plain)
    for offset, bodies in read.items():
        if len(bodies) > 1:
            yield (undecided if history.lost_data else violated)("record", offset)


@reading(
    "QC-08", MetadataCommitted, ChangeAnswered, IsrChangeAnswered, BrokerStateChanged, *RECORDS
)
def answered_once_committed(history: History) -> Iterator[Word]:
    """A change is answered only after its record is committed."""
    for at in history.of(ChangeAnswered):
        body = at.body
        if body.error == "NONE" and body.offset >= 0 and body.high_watermark <= body.offset:
            yield violated(at.process, body.offset)
        told = [one.body.offset for one in history.of(MetadataCommitted) if one.place < at.place]
        if body.error == "NONE" and body.offset > max(told, default=-1):
            yield undecided(at.process, body.offset)  # its high watermark is its own word
    for at in history.of(IsrChangeAnswered):
        body = at.body
        same = [
            one.place < at.place
            for one in history.of(PartitionCommitted)
            if (one.body.topic, one.body.partition) == (body.topic, body.partition)
            and set(one.body.isr) == set(body.isr)
            and one.body.leader_epoch >= max(body.granted_epoch, body.leader_epoch)
        ]
        if body.error == "NONE" and not any(same):
            # Where nodes do not tell what they commit, an observer may read it later.
            later = bool(same) and history.plane != "quorum"
            yield (undecided if later else violated)(at.process, body.topic, body.partition)
    for at in history.of(BrokerStateChanged):
        known = [one.body.broker_epoch for one in history.of(BrokerCommitted)]
        if at.body.reason == "registered" and at.body.broker_epoch not in known:
            yield violated(at.process, at.body.broker_epoch)


@reading("QC-09", StateReverted)
def reverted(history: History) -> Iterator[Word]:
    """A controller that lost its place goes back to the committed state."""
    for at in history.of(StateReverted):
        if at.body.offset > at.body.high_watermark:
            yield violated(at.process, at.body.offset)


@reading("QC-11", SnapshotStored, SnapshotLoaded, MetadataDigest)
def snapshots(history: History) -> Iterator[Word]:
    """A snapshot holds the fewest records that describe every entity at one offset; with the log
    after it, it rebuilds exactly the state."""
    digests: dict[int, set[str]] = {}
    for at in history.of(SnapshotStored, SnapshotLoaded, MetadataDigest):
        digests.setdefault(at.body.offset, set()).add(at.body.digest)
    for at in history.of(SnapshotStored):
        if at.body.records != at.body.entities:
            yield violated("records", at.process, at.body.offset)
        for one in history.of(MetadataDigest):
            if one.body.offset == at.body.offset and one.body.entities != at.body.records:
                yield (undecided if history.lost_data else violated)("entities", at.body.offset)
    for loaded in history.of(SnapshotLoaded):
        after = [one for one in history.of(MetadataDigest) if one.place > loaded.place]
        own = {one.body.offset: one.body.digest for one in after if one.process == loaded.process}
        for one in history.of(MetadataDigest):
            if own.get(one.body.offset, one.body.digest) != one.body.digest:
                yield (undecided if history.lost_data else violated)("rebuilt", one.body.offset)
    for offset in {at.body.offset for at in history.of(SnapshotStored, SnapshotLoaded)}:
        if len(digests[offset]) > 1:
            yield (undecided if history.lost_data else violated)("digest", offset)


@reading("QC-25", MetricsReported, MetadataCommitted)
def lag(history: History) -> Iterator[Word]:
    """MetadataLag is the offsets between the last record replayed and the last stable one."""
    for at in history.of(MetricsReported):
        body = at.body
        own = [one.body.offset + 1 for one in before(history, at, MetadataCommitted)]
        if body.metadata_lag != max(0, body.last_stable - body.replayed):
            # How far it has replayed it tells in two ways.
            other = bool(own) and body.metadata_lag == max(0, body.last_stable - max(own))
            yield (undecided if other else violated)(at.process, body.metadata_lag)
        ends = [one.body.offset + 1 for one in history.of(MetadataCommitted)]
        if body.last_stable > max(ends, default=0):
            yield violated(at.process, "stable", body.last_stable)
        if body.replayed > max(own, default=0):
            yield undecided(at.process, "replayed")  # its own words differ, or some are missing
        recent = [
            one
            for one in before(history, at, MetadataCommitted)
            if at.at_ns - one.at_ns < (2 * body.over_ms + 1_000) * MS
        ]
        rated = body.commit_rate * body.over_ms / 1_000
        if rated > len(recent) + 1 or (recent and not rated):
            yield undecided(at.process, "rate")  # no event says when the rate's time began


@reading(
    "QC-28",
    *(ChangeAnswered, ControllerElected, BrokerCommitted, TopicCommitted, HeartbeatAnswered),
    MetadataTruncated,
)
def kept(history: History) -> Iterator[Word]:
    """A topic or registration made through one controller is there after every failover."""
    word = undecided if history.lost_data else violated
    granted = [
        (one, one.body.broker_epoch)
        for one in history.of(HeartbeatAnswered)
        if one.body.error == "NONE" and one.body.request_epoch == -1 and one.body.active
    ]
    answered = [
        (one, one.body.offset) for one in history.of(ChangeAnswered) if one.body.error == "NONE"
    ]
    for at in history.of(MetadataTruncated):
        for one, offset in (*granted, *answered):
            mine = one.process == at.process and one.place < at.place
            if mine and offset >= at.body.from_offset:
                yield word(at.process, offset)
    replayed = [(one, one.body.offset) for one in history.of(BrokerCommitted, TopicCommitted)]
    for at in history.of(ControllerElected):
        made = [(one, offset) for one, offset in replayed if one.place < at.place]
        made += [
            (one, offset)
            for one, offset in (*granted, *answered)
            if one.place < at.place or one.body.controller_epoch < at.body.epoch
        ]
        # One of a lower epoch than another one was elected before what is made since, and tells it
        # late.
        newest = max(
            one.body.epoch for one in history.of(ControllerElected) if one.place <= at.place
        )
        for _, offset in made:
            if offset >= at.body.log_end:
                yield (word if newest == at.body.epoch else undecided)(at.process, offset)


# ------------------------------------------------------------------------------ leases and states


@reading("QC-13", HeartbeatSent, HeartbeatAnswered, LeaseGranted, LeaseExpired, BrokerCommitted)
def lease_times(history: History) -> Iterator[Word]:
    """An accepted heartbeat is answered with a lease that ends at its start plus the period; the
    controller expires it at receipt plus the period."""
    for at in history.of(HeartbeatAnswered):
        body = at.body
        if body.error == "NONE" and body.lease_end_ms != body.lease_start_ms + body.lease_period_ms:
            yield violated("answer", body.broker_id)
    periods = {at.body.lease_period_ms for at in history.of(HeartbeatAnswered)}
    for at in history.of(LeaseGranted) if len(periods) == 1 else ():
        if at.body.lease_end_ms - at.body.lease_start_ms not in periods:
            # Only if the answer that it got is told as well: its own word may be wrong.
            answers = {
                (one.body.client, one.body.lease_start_ms)
                for one in history.of(HeartbeatAnswered)
                if one.place < at.place
            }
            told = (at.process, at.body.lease_start_ms) in answers
            yield (violated if told else undecided)("granted", at.body.broker_id)
    for at in history.of(LeaseExpired):
        body = at.body
        period_ns = body.lease_period_ms * MS
        if body.last_heard_ns >= 0 and body.now_ns < body.last_heard_ns + period_ns:
            yield violated("expired", body.broker_id)
            continue
        heard = [
            one
            for one in before(history, at, HeartbeatAnswered)
            if one.body.broker_id == body.broker_id
            and (one.body.error, one.body.broker_epoch) == ("NONE", body.broker_epoch)
            and one.body.controller_epoch == body.controller_epoch
            and one.body.next_state != "SHUTDOWN"
        ]
        for last in heard[:1]:
            if at.at_ns < last.at_ns + period_ns:
                # When it heard the broker is its own word, and when the broker sent that is not.
                # What was sent once it was answered is another heartbeat, or is told late.
                sent_ns = [
                    one.at_ns
                    for one in history.of(HeartbeatSent)
                    if one.process == last.body.client
                    and one.body.lease_start_ms == last.body.lease_start_ms
                    and one.at_ns <= last.at_ns
                ]
                since_ns = max([last.body.received_at_ns, *sent_ns[:1]])
                stood = history.end.stalled_ns(since_ns, at.at_ns, at.process) * 10 > period_ns
                early = since_ns > 0 and at.at_ns < since_ns + period_ns * 9 // 10
                yield (violated if early and not stood else undecided)("early", body.broker_id)
    for at in history.of(BrokerCommitted) if history.plane == "quorum" else ():
        body = at.body
        accepted = [
            one
            for one in history.of(HeartbeatAnswered)
            if one.body.broker_id == body.broker_id
            and (one.body.error, one.body.broker_epoch) == ("NONE", body.broker_epoch)
            and one.place < at.place
            and at.at_ns < one.at_ns + one.body.lease_period_ms * MS
        ]
        if body.fenced and accepted:
            yield undecided("by record", body.broker_id)  # why it was fenced, and when, is not told


@reading("QC-16", BrokerStateChanged, LeaseGranted, HeartbeatAnswered)
def told_to_leave(history: History) -> Iterator[Word]:
    """A broker starts fenced, and leaves that state only on a heartbeat response that tells it
    to."""
    for at in history.of(BrokerStateChanged):
        if at.body.new == "ACTIVE" and history.plane != "quorum":
            yield undecided(at.process)  # other nodes record no leases
        elif at.body.new == "ACTIVE":
            # Since it was fenced, or since it began, its own word or the controller's.
            states = before(history, at, BrokerStateChanged)
            since = next((one.place for one in states), -1)
            own = next(before(history, at, LeaseGranted), None)
            told = own is not None and own.place > since and own.body.next_state == "ACTIVE"
            answers = [
                one
                for one in history.of(HeartbeatAnswered)
                if one.body.client == at.process and one.body.error == "NONE"
            ]
            answered = any(
                since < one.place < at.place and one.body.next_state == "ACTIVE" for one in answers
            )
            # What it got is what a controller sent, by that controller's word.
            sent = {
                (one.body.active, one.body.next_state)
                for one in answers
                if told and one.body.lease_start_ms == own.body.lease_start_ms
            }
            otherwise = sent and "ACTIVE" not in {state for _, state in sent}
            if not (told or answered) or (otherwise and not answered):
                yield violated(at.process)
            elif own is not None and (True, "ACTIVE") not in sent:
                # It tells of what it gets, and not of this answer, or of one that nobody sent, or
                # one that did not decide.
                yield undecided(at.process)


ALLOWED = {
    *(("INITIAL", "FENCED"), ("INITIAL", "ACTIVE"), ("ACTIVE", "FENCED"), ("FENCED", "ACTIVE")),
    *(("ACTIVE", "SHUTDOWN"), ("FENCED", "SHUTDOWN")),
}


@reading("QC-20", BrokerStateChanged)
def moves(history: History) -> Iterator[Word]:
    """A broker's state moves only so; activity regained after a lost lease comes with a new broker
    epoch."""
    for at in history.of(BrokerStateChanged):
        body = at.body
        former = next((one.body.new for one in before(history, at, BrokerStateChanged)), body.old)
        for old in (body.old, former):
            if (old, body.new) not in ALLOWED:
                yield violated(at.process, old, body.new)
        if former != body.old:
            yield undecided(at.process)  # a change between the two was not told
        if body.new == "ACTIVE":
            lost = [
                one.body.broker_epoch
                for one in before(history, at, BrokerStateChanged)
                if one.body.reason == "lease_expired"
            ]
            if lost and body.broker_epoch <= max(lost):
                yield violated(at.process, "epoch", body.broker_epoch)


@reading("QC-21", BrokerCommitted, HeartbeatAnswered)
def epochs_grow(history: History) -> Iterator[Word]:
    """Broker epochs of one id only grow, over controller failovers too."""
    records: dict[int, dict[int, tuple[int, str]]] = {}
    for at in history.of(BrokerCommitted):
        body = at.body
        own = records.setdefault(body.broker_id, {})
        own.setdefault(body.offset, (body.broker_epoch, body.incarnation))
    for broker, by_offset in records.items():
        ordered = [by_offset[offset] for offset in sorted(by_offset)]
        for place, (epoch, incarnation) in enumerate(ordered):
            for earlier, other in ordered[:place]:
                if epoch < earlier or (epoch == earlier and incarnation != other):
                    sure = told_in_order(history, BrokerCommitted) and not history.lost_data
                    sure = sure and not clashing(history)
                    yield (violated if sure else undecided)(broker, epoch)


@reading(
    *("QC-22", NodeStarted, HeartbeatAnswered, ControllerElected, ControllerResigned),
    ProcessExited,
)
def not_controller(history: History) -> Iterator[Word]:
    """BrokerHeartbeat gets NOT_CONTROLLER from an inactive controller: one that was not elected, or
    has resigned since. The answer names the active controller, or -1."""
    elected = {at.process for at in history.of(ControllerElected)}
    told = {at.process for at in history.of(NodeStarted)}
    ids = {at.body.node_id for at in history.of(NodeStarted) if at.process in elected}
    gone = history.of(ProcessExited)
    for at in history.of(HeartbeatAnswered):
        turn = next(before(history, at, ControllerElected, ControllerResigned), None)
        active = turn is not None and isinstance(turn.body, ControllerElected)
        over = any(one.body.ended == at.process for one in gone if one.place < at.place)
        if at.body.error != "NOT_CONTROLLER" and not (active and at.body.active):
            # Of Apache Kafka's nodes no line says whether they were active as they answered.
            known = not active or history.plane == "quorum"
            yield (violated if known else undecided)(at.process, at.body.error)
        elif over:
            yield undecided(at.process)  # it tells what it did before it ended, or somebody else
        elif active and any(
            at.body.active_controller not in (-1, one.body.node_id)
            for one in before(history, at, NodeStarted)
        ):
            yield violated(at.process, "names", at.body.active_controller)
        elif active and not (at.body.active and turn.body.epoch == at.body.controller_epoch):
            yield undecided(at.process, at.body.controller_epoch)  # whether it resigned before
        elif at.body.error == "NOT_CONTROLLER" and at.body.active_controller != -1:
            # It names a controller that is another one, and that was elected at some time.
            named = at.body.active_controller
            own = {one.body.node_id for one in before(history, at, NodeStarted)}
            if not active and (named in own or named < -1):
                yield violated(at.process, "names", named)
            elif named not in ids:
                sure = history.end.complete and elected <= told
                yield (violated if sure else undecided)(at.process, "names", named)


@reading("QC-18", HeartbeatAnswered, PartitionCommitted)
def shutdown_once_free(history: History) -> Iterator[Word]:
    """The controller answers nextState SHUTDOWN only once every leadership is off the broker."""
    for at in history.of(HeartbeatAnswered):
        if at.body.error != "NONE" or at.body.next_state != "SHUTDOWN":
            continue
        newest: dict[tuple[str, int], PartitionCommitted] = {}
        for one in reversed([*before(history, at, PartitionCommitted)]):
            newest[one.body.topic, one.body.partition] = one.body
        for (topic, partition), record in newest.items():
            if record.leader == at.body.broker_id:
                yield violated(at.body.broker_id, topic, partition)


NO_WORD_OF_THE_ID = (
    *("NONE", "NOT_CONTROLLER", "UNSUPPORTED_VERSION", "INVALID_REQUEST"),
    "CLUSTER_AUTHORIZATION_FAILED",
)


def newer_one_loses(history: History) -> Iterator[Word]:
    """Of two processes that claim one id, one in INITIAL wins. Where a third one claims it, that
    may have won."""
    refusals = [
        at
        for at in history.of(HeartbeatAnswered, HeartbeatRefused)
        if at.body.error not in NO_WORD_OF_THE_ID
    ]
    answers = bool(history.of(HeartbeatAnswered))
    for at in refusals:
        body = at.body
        if isinstance(body, HeartbeatRefused):
            if answers or body.broker_epoch != -1:
                continue
            process = at.process
        else:
            if body.request_epoch >= 0 or not body.active:
                continue
            process = body.client
        started = {
            one.process: (one.body.node_id, one.body.incarnation)
            for one in history.of(NodeStarted)
            if one.place < at.place and one.body.role == "broker"
        }
        if isinstance(body, HeartbeatAnswered):
            broker, incarnation = body.broker_id, body.incarnation
        else:
            broker, incarnation = started.get(process, (-1, ""))
        ended = {one.body.ended for one in history.of(ProcessExited) if one.place < at.place}
        living = {
            mine for name, (id_, mine) in started.items() if id_ == broker and name not in ended
        }
        records: dict[str, int] = {}
        for one in history.of(BrokerCommitted):
            if one.place < at.place and one.body.broker_id == broker:
                records.setdefault(one.body.incarnation, one.body.offset)
        if not records or incarnation in records:
            continue
        holder = max(records, key=lambda name: records[name])
        if holder in living and living | {incarnation} == {holder, incarnation}:
            yield violated(process, broker, "refused")


@reading(
    "QC-19",
    *(HeartbeatAnswered, HeartbeatRefused, BrokerCommitted, FollowerFetched),
    *(NodeStarted, ProcessExited, ChangeAnswered),
)
def loser_is_not_heard(history: History) -> Iterator[Word]:
    """From the commit of the newer registration nothing the loser sends is accepted."""
    yield from newer_one_loses(history)
    for at in history.of(HeartbeatAnswered, FollowerFetched):
        body = at.body
        heartbeat = isinstance(body, HeartbeatAnswered)
        if heartbeat and (body.error != "NONE" or body.request_epoch < 0):
            continue
        broker = body.broker_id if heartbeat else body.follower
        epoch = body.request_epoch if heartbeat else body.broker_epoch
        own = [one.body for one in before(history, at, BrokerCommitted)]
        own = sorted((one for one in own if one.broker_id == broker), key=lambda one: one.offset)
        # A process gets a new epoch when it is unfenced, too: what counts is whose epoch it was.
        whose = {one.broker_epoch: one.incarnation for one in own}
        sender = body.incarnation if heartbeat else whose.get(epoch, "")
        if own and sender and sender in whose.values() and sender != own[-1].incarnation:
            yield violated(at.process, broker, epoch)
    for at in history.of(ChangeAnswered):
        if at.body.api != "AlterIsr" or at.body.error != "NONE":
            continue
        for asks in history.of(NodeStarted):
            own = [one.body for one in before(history, at, BrokerCommitted)]
            own = sorted(
                (one for one in own if one.broker_id == asks.body.node_id),
                key=lambda one: one.offset,
            )
            mine = [
                one.body.offset
                for one in history.of(BrokerCommitted)
                if one.body.incarnation == asks.body.incarnation
            ]
            if asks.process != at.body.client or asks.body.role != "broker" or not own or not mine:
                continue
            newer = [one.offset for one in own if one.incarnation == own[-1].incarnation]
            if own[-1].incarnation == asks.body.incarnation or min(mine) > min(newer):
                continue
            # Whom it answered is its own word, and so is whose request it was.
            cause = history.events[at.place].cause
            otherwise = cause is not None and cause.request and cause.process != at.body.client
            late = 0 <= at.body.offset < min(newer)  # only its answer came later
            yield (undecided if otherwise or late else violated)(at.process, "AlterIsr")
    records: dict[int, dict[int, str]] = {}
    for at in history.of(BrokerCommitted):
        of_id = records.setdefault(at.body.broker_id, {})
        of_id.setdefault(at.body.offset, at.body.incarnation)
    for broker, of_id in records.items():
        if any(
            one.body.broker_id == broker and one.body.incarnation != of_id[one.body.offset]
            for one in history.of(BrokerCommitted)
        ):
            yield undecided(broker)  # nodes tell of two at one offset: that is another promise
        turns = [name for name, _ in groupby(of_id[offset] for offset in sorted(of_id))]
        if len(turns) > len(set(turns)):  # a process that had lost the id has it again
            sure = told_in_order(history, BrokerCommitted)
            yield (violated if sure else undecided)(broker, "again")


@reading("QC-31", ControllerElected, LeaseExpired, HeartbeatAnswered)
def full_period(history: History) -> Iterator[Word]:
    """A new active controller treats each unfenced broker's lease as running one full period from
    its takeover."""
    # The period is the cluster's: by a controller's own word it is no shorter than by all others'.
    told: dict[str, int] = {}
    for at in history.of(HeartbeatAnswered, LeaseExpired):
        told[at.process] = max(told.get(at.process, 0), at.body.lease_period_ms)
    began = {(at.process, at.body.epoch): at.at_ns for at in history.of(ControllerElected)}
    for at in history.of(LeaseExpired):
        from_ns = began.get((at.process, at.body.controller_epoch))
        others = [ms for process, ms in told.items() if process != at.process]
        period_ms = max(told[at.process], min(others, default=0))
        # By its clock, which is another one than that of the events.
        early = at.body.now_ns - at.body.last_heard_ns < at.body.lease_period_ms * MS
        if from_ns is not None and at.at_ns < from_ns + period_ms * MS:
            yield (violated if early else undecided)(at.process, at.body.broker_id)


def clashing(history: History) -> bool:
    """Whether nodes tell different brokers' records at one offset: that is another promise."""
    at_offset: dict[int, set[int]] = {}
    for at in history.of(BrokerCommitted):
        at_offset.setdefault(at.body.offset, set()).add(at.body.broker_id)
    return any(len(brokers) > 1 for brokers in at_offset.values())


def told_in_order(history: History, kind: type) -> bool:
    """Whether each record was told after those before it, by whoever told it first; and whether all
    tell the same of each offset. If they do not, that is another promise."""
    told: dict[int, int] = {}
    said: dict[int, object] = {}
    for at in history.of(kind):
        told.setdefault(at.body.offset, at.place)
        plain = replace(at.body, role="")
        if said.setdefault(at.body.offset, plain) != plain:
            return False
    places = [told[offset] for offset in sorted(told)]
    return places == sorted(places)


def partitions(history: History) -> dict[tuple[str, int], list[PartitionCommitted]]:
    """The records of each partition, in the order of their offsets."""
    found: dict[tuple[str, int], dict[int, PartitionCommitted]] = {}
    for at in history.of(PartitionCommitted):
        own = found.setdefault((at.body.topic, at.body.partition), {})
        own.setdefault(at.body.offset, at.body)
    return {name: [own[offset] for offset in sorted(own)] for name, own in found.items()}


@reading("QC-32", PartitionCommitted, TopicCommitted)
def leader_epoch_grows(history: History) -> Iterator[Word]:
    """LeaderEpoch grows with every change of leader or ISR."""
    again = {at.body.topic for at in history.of(TopicCommitted) if at.body.deleted}
    for (topic, partition), records in partitions(history).items():
        for one, other in pairwise(records):
            changes = one.leader != other.leader or set(one.isr) != set(other.isr)
            if changes and other.leader_epoch <= one.leader_epoch:
                sure = topic not in again and told_in_order(history, PartitionCommitted)
                yield (violated if sure else undecided)(topic, partition, other.offset)


@reading(
    *("QC-17", BrokerStateChanged, LeaseGranted, *SERVED),
    *(ProbeCompleted, NodeStarted, ProcessSpawned),
)
def fenced_after_active(history: History) -> Iterator[Word]:
    """A broker fenced after having been active processes no new client request until it is active
    again."""
    for at in served(history):
        if isinstance(at.body, ProduceAnswered):
            continue  # the answer to a request that it may have had before
        states = [*before(history, at, BrokerStateChanged)]
        was_active = any(one.body.new == "ACTIVE" for one in states)
        # Since it was active last: a fenced one that shuts down is so still.
        since = [*takewhile(lambda one: one.body.new != "ACTIVE", states)]
        fenced = [one for one in since if one.body.new == "FENCED"]
        if fenced and was_active:
            # A fetch may wait for so long for what it is to get: then it is not a new one.
            waited_ns = at.at_ns - fenced[-1].at_ns
            new = not isinstance(at.body, FetchServed) or waited_ns >= 1_000 * MS
            yield (violated if new else undecided)(at.process, type(at.body).__name__)
        grant = next(before(history, at, LeaseGranted), None)
        lately = grant is not None and at.at_ns <= grant.body.ends_at_ns + 1_000 * MS
        if lately and was_active and at.at_ns > grant.body.ends_at_ns:
            yield undecided(at.process)  # its clock, or the last grant that it told
        elif grant is not None and was_active and at.at_ns > grant.body.ends_at_ns:
            yield violated(at.process, type(at.body).__name__, "lease")
    yield from answered_while_fenced(history)


def answered_while_fenced(history: History) -> Iterator[Word]:
    """Where a client got an answer that it had asked for once a broker was fenced, after it had
    been active. The client names the slot: the newest process there answered it."""
    for at in history.of(ProbeCompleted):
        body = at.body
        if body.outcome != "answered" or body.api not in FOR_CLIENTS:
            continue
        there = [
            getattr(one.body, "started", one.process)
            for one in history.of(ProcessSpawned, NodeStarted, BrokerStateChanged)
            if one.place < at.place
        ]
        there = [process for process in there if slot_of(process) == body.slot]
        states = [
            one
            for one in history.of(BrokerStateChanged)
            if there and one.process == there[-1] and one.place < at.place
        ]
        if not states or states[-1].body.new == "ACTIVE" or states[-1].at_ns >= body.sent_at_ns:
            continue
        was_active = any("ACTIVE" in (one.body.old, one.body.new) for one in states)
        fenced = states[-1].body.new == "FENCED" and was_active
        yield (violated if fenced else undecided)(there[-1], body.api)


def served(history: History) -> Iterator[At]:
    """Where a broker did what a client asked."""
    for at in history.of(*SERVED):
        match at.body:
            case ProduceAnswered(error=error):
                done = error == "NONE"
            case LogAppended(as_leader=as_leader):
                done = as_leader
            case _:
                done = True
        if done:
            yield at


@reading("REG-05", BrokerStateChanged, NodeStarted, ProcessSpawned, ProbeCompleted, *SERVED)
def silent_while_starting(history: History) -> Iterator[Word]:
    """A broker answers no client request while it starts and has not been Online yet. A client
    that got an answer names its slot only, so that counts for the slot's newest process."""
    for at in served(history):
        states = [one.body for one in before(history, at, BrokerStateChanged)]
        if not any(one.new == "ACTIVE" for one in states):
            yield violated(at.process)
    for at in history.of(ProbeCompleted):
        body = at.body
        if body.outcome != "answered" or body.api not in FOR_CLIENTS:
            continue
        begun = [
            (one.body.started if isinstance(one.body, ProcessSpawned) else one.process, one.at_ns)
            for one in history.of(ProcessSpawned, NodeStarted)
            if one.body.role == "broker" and one.place < at.place
        ]
        begun = [one for one in begun if slot_of(one[0]) == body.slot]
        if not begun:
            continue
        process = begun[-1][0]
        from_ns = min(at_ns for one, at_ns in begun if one == process)
        active = any(
            one.process == process and one.body.new == "ACTIVE"
            for one in history.of(BrokerStateChanged)
            if one.place < at.place
        )
        if not active and body.sent_at_ns > from_ns:
            yield violated(process, body.api)


@reading("REG-02", RecoveryStarted, RecoveryEnded, HeartbeatSent, HeartbeatAnswered)
def recovers_first(history: History) -> Iterator[Word]:
    """A broker sends Register only after log recovery."""
    tell = {at.process for at in history.of(HeartbeatSent)}
    for at in history.of(HeartbeatAnswered):
        # A process that tells of its requests is believed that it sent no other one.
        steps = [
            one
            for one in history.of(RecoveryStarted, RecoveryEnded)
            if one.process == at.body.client and one.place < at.place
        ]
        recovers = bool(steps) and isinstance(steps[-1].body, RecoveryStarted)
        if recovers and at.body.client not in tell:
            yield violated(at.body.client)
    for at in history.of(HeartbeatSent):
        last = next(before(history, at, RecoveryStarted, RecoveryEnded), None)
        later = any(one.process == at.process for one in history.of(RecoveryStarted, RecoveryEnded))
        again = last is not None and isinstance(last.body, RecoveryEnded)
        if again and any(
            one.process == at.process and one.place > at.place
            for one in history.of(RecoveryStarted)
        ):
            yield undecided(at.process)  # whether it recovers once more, or had not ended
        # One that has an epoch has registered before.
        registers = last is None and later
        if registers or (last is not None and isinstance(last.body, RecoveryStarted)):
            yield violated(at.process)


@reading("REG-03", BrokerCommitted, HeartbeatAnswered)
def taken_over_fenced(history: History) -> Iterator[Word]:
    """On Register the controller creates the entry, or takes over the existing one, in the fenced
    state, and then answers."""
    records: dict[int, dict[int, BrokerCommitted]] = {}
    for at in history.of(BrokerCommitted):
        records.setdefault(at.body.broker_id, {}).setdefault(at.body.offset, at.body)
    for broker, by_offset in records.items():
        ordered = [by_offset[offset] for offset in sorted(by_offset)]
        sure = told_in_order(history, BrokerCommitted)
        for _, turn in groupby(ordered, key=lambda one: one.incarnation):
            first = next(turn)
            if not first.fenced and (first.broker_epoch == first.offset or first is not ordered[0]):
                yield (violated if sure else undecided)(broker, first.broker_epoch)
        if not sure:
            yield undecided(broker)
    for at in history.of(HeartbeatAnswered):
        body = at.body
        if body.error == "NONE" and body.active and body.request_epoch < 0:
            known = {one.body.broker_epoch for one in before(history, at, BrokerCommitted)}
            entry = any(
                one.body.incarnation == body.incarnation
                for one in before(history, at, BrokerCommitted)
            )
            if body.broker_epoch not in known:
                word = undecided if entry else violated  # of an entry with another epoch
                yield word(body.broker_id, body.broker_epoch, "answered")


@reading(
    *("REG-08", BrokerStateChanged, LeaseGranted, HeartbeatAnswered, BrokerStopping, ProcessExited),
    *(ProcessAsked, HeartbeatRefused),
)
def stops_when_told(history: History) -> Iterator[Word]:
    """A stopping broker keeps running until the active controller's answer tells it to go
    Offline."""
    for at in history.of(BrokerStateChanged):
        if at.body.reason == "shutdown_granted":
            told = next(before(history, at, LeaseGranted), None)
            wanted = any(
                getattr(one.body, "asked", one.process) == at.process and one.place < at.place
                for one in history.of(BrokerStopping, ProcessAsked)
            )
            if told is None or told.body.next_state != "SHUTDOWN":
                # Nobody had asked it to stop: then what it says is not of a stop.
                yield (violated if wanted else undecided)(at.process)
            elif not any(lets_go(one, at) for one in history.of(HeartbeatAnswered)):
                yield undecided(at.process)  # nobody sent what it says that it got
    for at in history.of(ProcessExited):
        asked = [one for one in history.of(BrokerStopping) if one.process == at.body.ended]
        early = [one for one in asked if at.at_ns < one.at_ns + one.body.limit_ms * MS]
        answers = [one for one in history.of(HeartbeatAnswered) if one.body.client == at.body.ended]
        taken = [one for one in history.of(LeaseGranted) if one.process == at.body.ended]
        let_go = any(lets_go(one, at) for one in answers)
        let_go = let_go and (not taken or taken[-1].body.next_state == "SHUTDOWN")
        if early and at.body.signal == 0 and not let_go:
            yield undecided(at.body.ended)  # its controller may have been killed
        # That it was asked to end, and that it did, is the harness's word.
        wanted = [
            one.at_ns
            for one in history.of(ProcessAsked)
            if one.body.asked == at.body.ended and one.place < at.place
        ]
        ends = at.body.exit_code == 0 and at.body.signal in (0, SIGINT, SIGTERM)
        if wanted and ends and taken and not let_go:
            # One that lost its id has nothing to move, one that starts says so, and one may have
            # waited for as long as it may.
            lost = any(one.process == at.body.ended for one in history.of(HeartbeatRefused))
            waited = at.at_ns - wanted[0] >= 1_000 * MS
            told = asked or any(
                one.process == at.body.ended and one.body.new == "SHUTDOWN"
                for one in history.of(BrokerStateChanged)
            )
            sure = not (answers or told or lost or waited)
            yield (violated if sure else undecided)(at.body.ended, "asked")


def lets_go(answer: At, at: At) -> bool:
    """Whether a controller has told a process to shut down, before an event that is about it."""
    process = getattr(at.body, "ended", at.process)
    sent = answer.body.error == "NONE" and answer.body.next_state == "SHUTDOWN"
    return sent and answer.body.client == process and answer.place < at.place


@reading("REG-09", BrokerStopping, ProcessExited, ProcessSpawned)
def stops_in_time(history: History) -> Iterator[Word]:
    """A stopping broker whose leaders cannot be moved within the set time shuts down all the
    same."""
    ends = {at.body.ended: at.at_ns for at in history.of(ProcessExited)}
    for at in history.of(BrokerStopping):
        due_ns = at.at_ns + at.body.limit_ms * MS
        end_ns = ends.get(at.process, NEVER)
        if end_ns < at.at_ns:
            yield undecided(at.process)
        if min(end_ns, history.end.ended_at_ns) > due_ns + 2_000 * MS:
            stood = history.end.stalled_ns(at.at_ns, end_ns, at.process) > 100 * MS
            paused = any(
                fault.from_ns < end_ns and fault.to_ns > at.at_ns for fault in history.faults
            )
            sure = history.end.complete and not stood and not paused
            yield (violated if sure else undecided)(at.process)


@reading("QC-26", BrokerDeleted, PartitionCommitted, BrokerCommitted, TopicCommitted)
def deleted_brokers(history: History) -> Iterator[Word]:
    """DeleteBroker removes the broker from every ISR, except as the last member, where the
    partition is left without a leader."""
    for at in history.of(BrokerDeleted):
        offset, broker = at.body.offset, at.body.broker_id
        # Nodes that tell two deletions at one offset break another promise; and the changes that
        # follow a deletion take their time.
        told = {
            one.body.broker_id for one in history.of(BrokerDeleted) if one.body.offset == offset
        }
        sure = len(told) == 1 and history.end.ended_at_ns - at.at_ns > 10_000 * MS
        again = [
            one.body.offset
            for one in history.of(BrokerCommitted)
            if one.body.broker_id == broker and one.body.offset > offset
        ]
        until = min(again, default=NEVER)
        for (topic, partition), records in partitions(history).items():
            seen = [one for one in records if one.offset < until]
            gone = any(
                one.body.topic == topic and one.body.deleted for one in history.of(TopicCommitted)
            )
            if seen and not gone and seen[0].offset < offset < seen[-1].offset:
                last = seen[-1]
                stays = broker in last.isr and len(last.isr) > 1
                if stays or last.leader == broker:
                    yield (violated if sure else undecided)(broker, topic, partition)
