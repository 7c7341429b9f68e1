"""Each event in words: one sentence about what it says, for a terminal, a page and an explanation.

The writer's name and the time stand beside a sentence, not in it. An event of a plugin's kind, or
of a kind nobody declares, reads as its name and its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from fencepost.events import kinds as e
from fencepost.events.kinds import Event


def sentence(event: Event) -> str:
    """What the event says, in words, without its time and its writer."""
    return of_body(event.body)


def of_body(body: Struct) -> str:
    """What a body says."""
    words = _WORDS.get(type(body))
    return _plain(body) if words is None else words(body)


def numbers(values: Sequence[int]) -> str:
    """`1, 2 and 3`; `nobody` for none."""
    texts = [str(value) for value in values]
    if not texts:
        return "nobody"
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _plain(body: Struct) -> str:
    if isinstance(body, e.Unrecognised):
        return f"{body.kind}: {body.raw}"
    fields = ", ".join(f"{name}={value}" for name, value in msgspec.structs.asdict(body).items())
    return f"{e.kind_name(type(body))}: {fields}" if fields else e.kind_name(type(body))


def span(ns: int) -> str:
    """A time: `12 ms`, `5.2 s`."""
    return f"{ns / 1e9:.1f} s" if ns >= 1_000_000_000 else f"{ns // 1_000_000} ms"


def _offsets(first: int, end: int) -> str:
    return f"offset {first}" if end - first == 1 else f"offsets {first} to {end - 1}"


def _at(body: Any) -> str:
    return f"{body.topic}-{body.partition}"


def _because(text: str, joint: str = ": ") -> str:
    return f"{joint}{text}" if text else ""


def _exited(b: e.ProcessExited) -> str:
    how = f"by signal {b.signal}" if b.signal else f"with code {b.exit_code}"
    return f"{b.ended} ended {how}{'' if b.expected else ', unexpectedly'}"


def _struck(b: e.FaultStruck) -> str:
    proof = b.evidence if b.receipt else f"without a receipt ({b.evidence})"
    return f"fault {b.fault_id} struck {', '.join(b.targets)}: {proof}"


def _recovered(b: e.ClusterRecovered) -> str:
    if b.recovered:
        return f"the cluster recovered in {b.took_ms} ms"
    return f"the cluster had not recovered after {b.bound_ms} ms: {'; '.join(b.missing)}"


def _vote(b: e.VoteAnswered) -> str:
    if b.granted:
        return f"voted for controller {b.candidate} in epoch {b.epoch}"
    return f"refused controller {b.candidate} its vote in epoch {b.epoch} ({b.reason})"


def _broker(b: e.BrokerCommitted) -> str:
    state = "fenced" if b.fenced else "active"
    return (
        f"committed at offset {b.offset}: broker {b.broker_id} is {state}, broker epoch "
        f"{b.broker_epoch}, incarnation {b.incarnation[:8]}"
    )


def _partition(b: e.PartitionCommitted) -> str:
    leader = f"broker {b.leader} leads" if b.leader >= 0 else "nobody leads"
    moves = f", adding {numbers(b.adding)}" if b.adding else ""
    moves += f", removing {numbers(b.removing)}" if b.removing else ""
    return (
        f"committed at offset {b.offset}: {leader} {_at(b)} in leader epoch {b.leader_epoch}, "
        f"ISR {numbers(b.isr)}{moves}"
    )


def _changed(b: e.ChangeAnswered) -> str:
    return (
        f"answered {b.api} of {b.client} with {b.error}: record at {b.offset}, high watermark "
        f"{b.high_watermark}, controller epoch {b.controller_epoch}"
    )


def _answered(b: e.HeartbeatAnswered) -> str:
    what = "the registration" if b.request_epoch < 0 else "a heartbeat"
    if b.error != "NONE":
        return f"refused {what} of {b.client} as broker {b.broker_id}: {b.error}"
    return (
        f"accepted {what} of {b.client} as broker {b.broker_id}: broker epoch {b.broker_epoch}, "
        f"next state {b.next_state}, controller epoch {b.controller_epoch}"
    )


def _expired(b: e.LeaseExpired) -> str:
    silent_ms = (b.now_ns - b.last_heard_ns) // 1_000_000
    return (
        f"expired the lease of broker {b.broker_id}, broker epoch {b.broker_epoch}, silent for "
        f"{silent_ms} ms of {b.lease_period_ms}"
    )


def _granted(b: e.LeaseGranted) -> str:
    return (
        f"got a lease of {b.lease_end_ms - b.lease_start_ms} ms as broker {b.broker_id}: broker "
        f"epoch {b.broker_epoch}, next state {b.next_state}, controller epoch {b.controller_epoch}"
    )


def _appended(b: e.LogAppended) -> str:
    who = "a client's write" if b.as_leader else "what it fetched"
    return (
        f"stored {who} in {_at(b)} at {_offsets(b.base_offset, b.log_end)}, leader epoch "
        f"{b.leader_epoch}"
    )


def _marked(b: e.HighWatermarkAdvanced) -> str:
    over = f" over {numbers(b.counted)}" if b.as_leader else ""
    return f"moved the high watermark of {_at(b)} to {b.high_watermark}{over}"


def _isr_asked(b: e.IsrChangeAsked) -> str:
    return (
        f"asked for the ISR {numbers(b.new_isr)} of {_at(b)} instead of {numbers(b.old_isr)}, "
        f"leader epoch {b.leader_epoch}"
    )


def _isr_answered(b: e.IsrChangeAnswered) -> str:
    if b.error != "NONE":
        return f"was refused a new ISR of {_at(b)}: {b.error}"
    return f"was granted the ISR {numbers(b.isr)} of {_at(b)}"


def _produced(b: e.ProduceAnswered) -> str:
    if b.error != "NONE":
        return f"answered a produce of {b.client} to {_at(b)} with {b.error}"
    acks = "all" if b.acks == -1 else b.acks
    return (
        f"acknowledged acks={acks} of {b.client} to {_at(b)} at "
        f"{_offsets(b.base_offset, b.log_end)}, high watermark {b.high_watermark}"
    )


def _served(b: e.FetchServed) -> str:
    return (
        f"served {b.client} {_offsets(b.from_offset, b.to_offset)} of {_at(b)} while {b.state}, "
        f"high watermark {b.high_watermark}"
    )


def _refused(b: e.RequestRefused) -> str:
    where = f" for {_at(b)}" if b.topic else ""
    whose = f"broker {b.requester}, {b.client}," if b.requester >= 0 else b.client
    return f"refused a {b.api} of {whose}{where} with {b.error} ({b.reason}), while {b.state}"


def _completed(b: e.ProduceCompleted) -> str:
    if b.outcome == "ok":
        return f"{b.operation} was acknowledged at offset {b.offset} of {_at(b)}"
    how = "failed" if b.outcome == "failed" else "has an unknown outcome"
    return f"{b.operation} to {_at(b)} {how}{_because(b.error)}"


def _polled(b: e.Polled) -> str:
    why = " in the final reading" if b.final else ""
    if not b.offsets:
        return f"got nothing of {_at(b)}{why}"
    return f"got {len(b.offsets)} messages of {_at(b)} from offset {b.offsets[0]} on{why}"


def _probed(b: e.ProbeCompleted) -> str:
    where = f" for {_at(b)}" if b.topic and b.partition >= 0 else ""
    end = {"answered": "was answered", "refused": f"was refused with {b.error}"}
    return f"a {b.api} sent to {b.slot}{where} {end.get(b.outcome, f'ended: {b.outcome}')}"


def _positioned(b: e.ConsumerPositioned) -> str:
    where = {-2: "the beginning", -1: "the end"}.get(b.offset, f"offset {b.offset}")
    return f"goes on in {_at(b)} from {where}"


_WORDS: dict[type[Struct], Callable[[Any], str]] = {
    e.RunStarted: lambda b: f"a run of {b.system} on {b.runtime} with seed {b.seed} began",
    e.PhaseStarted: lambda b: f"the phase {b.phase} began",
    e.RunEnded: lambda b: "the run ended" if b.completed else "the run was cut short",
    e.ProcessSpawned: lambda b: f"started {b.started} as {b.role} {b.node_id}",
    e.ProcessExited: _exited,
    e.NodeStarted: lambda b: (
        f"began as {b.role} {b.node_id}, incarnation {b.incarnation[:8]}, metadata up to "
        f"{b.metadata_offset}"
    ),
    e.RecoveryStarted: lambda b: f"recovers the logs of node {b.node_id}",
    e.RecoveryEnded: lambda b: f"has recovered {b.logs} logs with {b.batches} batches",
    e.NodeStopped: lambda b: f"stopped{_because(b.reason)}",
    e.EvidenceMissed: lambda b: f"what is missing here for good: {b.what}",
    e.Stalled: lambda b: f"stood still for {span(b.stalled_ns)}",
    e.ConnectionClosed: lambda b: f"closed a connection of {b.peer}{_because(b.reason)}",
    e.FaultStruck: _struck,
    e.FaultHealed: lambda b: f"fault {b.fault_id} healed{_because(b.evidence)}",
    e.TestStarted: lambda b: f"the test {b.nodeid} began",
    e.TestEnded: lambda b: f"the test {b.nodeid} {b.outcome}",
    e.PromiseWitnessed: lambda b: (
        f"the test saw {b.clause} {'hold' if b.held else 'broken'}: {b.evidence}"
    ),
    e.ClusterRecovered: _recovered,
    e.ElectionStarted: lambda b: f"stands for election in epoch {b.epoch}, log end {b.log_end}",
    e.VoteAnswered: _vote,
    e.ControllerElected: lambda b: (
        f"became active controller of epoch {b.epoch}, log end {b.log_end}"
    ),
    e.ControllerResigned: lambda b: (
        f"resigned as active controller of epoch {b.epoch} ({b.reason})"
    ),
    e.ControllerFollowed: lambda b: f"follows controller {b.leader} of epoch {b.epoch}",
    e.QuorumLearned: lambda b: f"takes controllers {numbers(b.voters)} for the quorum",
    e.MetadataApplied: lambda b: f"works by the metadata up to offset {b.offset}",
    e.MetadataCommitted: lambda b: f"committed a {b.kind} record at metadata offset {b.offset}",
    e.MetadataDigest: lambda b: (
        f"has the state {b.digest} at metadata offset {b.offset}, of {b.entities} entities"
    ),
    e.FeatureFinalized: lambda b: (
        f"committed at offset {b.offset}: {b.feature} is enabled at level {b.level}"
    ),
    e.SnapshotStarted: lambda b: (
        f"begins a snapshot of {b.entities} entities at metadata offset {b.offset}"
    ),
    e.SnapshotStored: lambda b: (
        f"stores a snapshot at metadata offset {b.offset}: {b.records} records, which make the "
        f"state {b.digest}"
    ),
    e.SnapshotLoaded: lambda b: (
        f"loaded a snapshot at metadata offset {b.offset}, which makes the state {b.digest}"
    ),
    e.SnapshotKnown: lambda b: (
        f"knows that controller {b.controller}'s last snapshot is at offset {b.offset}"
    ),
    e.SnapshotAsked: lambda b: (
        f"tells controller {b.controller} to take a snapshot: its last one is at offset "
        f"{b.last_offset}, and offset {b.committed} is committed"
    ),
    e.MetricsReported: lambda b: (
        f"reports as {b.role} {b.node_id}: MetadataLag {b.metadata_lag}, with offset {b.replayed} "
        f"replayed of {b.last_stable}"
    ),
    e.MetadataTruncated: lambda b: (
        f"dropped metadata from offset {b.from_offset} to {b.log_end}, high watermark "
        f"{b.high_watermark}"
    ),
    e.StateReverted: lambda b: (
        f"went back to the state before offset {b.offset}, high watermark {b.high_watermark}"
    ),
    e.BrokerCommitted: _broker,
    e.TopicCommitted: lambda b: (
        f"committed at offset {b.offset}: the topic {b.topic} is "
        f"{'deleted' if b.deleted else 'there'}"
    ),
    e.PartitionCommitted: _partition,
    e.TopicMarked: lambda b: (
        f"committed at offset {b.offset}: the topic {b.topic} is being deleted"
    ),
    e.BrokerDeleted: lambda b: f"committed at offset {b.offset}: broker {b.broker_id} is deleted",
    e.ChangeAnswered: _changed,
    e.HeartbeatAnswered: _answered,
    e.LeaseExpired: _expired,
    e.BrokerStateChanged: lambda b: (
        f"went from {b.old} to {b.new} ({b.reason}), broker epoch {b.broker_epoch}"
    ),
    e.BrokerStopping: lambda b: (
        f"was asked to stop while {b.state}, and ends {b.limit_ms} ms from now at the latest"
    ),
    e.HeartbeatSent: lambda b: (
        f"sends controller {b.controller} a heartbeat for {b.target_state}, broker epoch "
        f"{b.broker_epoch}"
    ),
    e.LeaseGranted: _granted,
    e.HeartbeatRefused: lambda b: (
        f"was refused by controller {b.controller} as broker {b.broker_id}: {b.error}"
    ),
    e.LeadershipStarted: lambda b: (
        f"leads {_at(b)} in leader epoch {b.leader_epoch}, ISR {numbers(b.isr)}, log end "
        f"{b.log_end}, high watermark {b.high_watermark}"
    ),
    e.LeadershipEnded: lambda b: (
        f"stops leading {_at(b)} in leader epoch {b.leader_epoch} ({b.reason})"
    ),
    e.FollowingStarted: lambda b: (
        f"follows broker {b.leader} in {_at(b)}, leader epoch {b.leader_epoch}, from log end "
        f"{b.log_end}, high watermark {b.high_watermark}"
    ),
    e.LogAppended: _appended,
    e.LogTruncated: lambda b: (
        f"dropped {_at(b)} from offset {b.to_offset} to {b.from_log_end} ({b.reason}), high "
        f"watermark {b.high_watermark}"
    ),
    e.HighWatermarkAdvanced: _marked,
    e.FollowerFetched: lambda b: (
        f"counts broker {b.follower}, {b.client}, to have {_at(b)} up to offset {b.offset}"
    ),
    e.IsrChangeAsked: _isr_asked,
    e.IsrChangeAnswered: _isr_answered,
    e.ReplicaRemoved: lambda b: f"deletes its log of {_at(b)} ({b.reason})",
    e.ReplicaCheckpointed: lambda b: (
        f"stores the high watermark {b.high_watermark} of {_at(b)}; its log is synced up to "
        f"offset {b.flushed}"
    ),
    e.ProduceAnswered: _produced,
    e.FetchServed: _served,
    e.RequestRefused: _refused,
    e.ClientStarted: lambda b: f"a {b.kind} began, with {b.library}",
    e.ProduceInvoked: lambda b: f"produces {b.operation} to {_at(b)}",
    e.ProduceCompleted: _completed,
    e.ProducerEpochChanged: lambda b: (
        f"began producer epoch {b.epoch} of id {b.producer_id}; what was on its way to {_at(b)} "
        "goes out again"
    ),
    e.Polled: _polled,
    e.ConsumerPositioned: _positioned,
    e.ReadCompleted: lambda b: (
        f"read {_at(b)} from {b.start} to {b.end}: {b.outcome}{_because(b.error, ', ')}"
    ),
    e.ProbeCompleted: _probed,
    e.AdminCompleted: lambda b: f"{b.api} {b.subject}: {b.outcome}{_because(b.error, ', ')}",
    e.ClientFailed: lambda b: f"the client {'died' if b.fatal else 'reports'}{_because(b.error)}",
}
