"""Fencing: the answers of a broker without a lease, and the actions of a process that lost its
id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Findings,
    Key,
    NodeStarted,
    ProcessExited,
    ProcessSpawned,
    Rule,
    RunEnd,
    Scope,
    Shared,
    Undecided,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ChangeAnswered,
    FetchServed,
    FollowerFetched,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatSent,
    LeaseGranted,
    LogAppended,
    ProbeCompleted,
    ProduceAnswered,
    RequestRefused,
    broker_of,
    partition_of,
)
from fencepost_kafka.vocabulary import FOR_CLIENTS
from fencepost_suites.brokers.registration import NOT_FOR_THE_ID
from fencepost_suites.common.keys import by_slot_serving
from fencepost_suites.common.starts import process_begun

FETCH_WAIT_NS = 1_000 * MS
"""How long before its answer a fetch may have arrived; a produce is stored at once."""
SLACK_NS = 100 * MS
"""How long past the end of its lease a broker may take to notice, before its answers count."""
_TAKEN_OVER = frozenset({"DUPLICATE_BROKER_REGISTRATION", "STALE_BROKER_EPOCH"})


@dataclass(slots=True)
class Serving:
    """One process of a slot: whether it may serve clients, and if not, since when."""

    process: str = ""
    started_ns: int = 0
    was_active: bool = False
    active: bool = False
    # Later than any time: without a grant there is no lease that could end.
    ends_ns: int = 1 << 62
    granted: Cause | None = None
    lost_ns: int = 0
    lost: Cause | None = None
    refused: dict[str, int] = field(default_factory=dict)
    """client -> when this process last refused it for being fenced."""
    former: set[str] = field(default_factory=set)
    """The processes of the slot that were active, and may tell late what they did then."""

    def begin(self, process: str) -> None:
        """The slot's next process starts."""
        self.process, self.started_ns = process, 0
        self.was_active = self.active = False
        self.ends_ns, self.granted = 1 << 62, None
        self.lost_ns, self.lost = 0, None
        self.refused = {}

    def changed(self, event: Event, body: BrokerStateChanged) -> None:
        """Applies a change of the broker's state."""
        # Only from ACTIVE: a starting broker becomes FENCED as well, and has lost nothing by that.
        # One that was active, by its own events, is no starting one, whatever it says that it was.
        if (self.active or body.old == "ACTIVE") and body.new == "FENCED":
            self.lost_ns, self.lost = event.at_ns, event.ref
        # And only as ACTIVE it may serve again: one that shuts down while it is fenced stays so.
        elif body.new == "ACTIVE":
            self.lost = None
        self.active = body.new == "ACTIVE"
        self.was_active = self.was_active or self.active

    def refuses(self, event: Event, body: RequestRefused) -> bool:
        """Whether a client was refused because this process is fenced."""
        if body.requester >= 0 or body.reason != "fenced" or event.process != self.process:
            return False
        self.refused[body.client] = event.at_ns
        return True

    def refused_probe(self, event: Event, body: ProbeCompleted) -> bool:
        """Whether a probe was refused by this process's fence."""
        return (
            body.outcome in ("refused", "closed")
            # The process's own word for the reason, and after the probe was sent: a connection may
            # be closed for other reasons.
            and self.refused.get(event.process, -1) >= body.sent_at_ns
        )


@dataclass(slots=True)
class _Slot:
    """The processes of a slot. A former one may still run when the next one has begun, as one that
    was paused does: it is held to what it knew."""

    processes: dict[str, Serving] = field(default_factory=dict)
    newest: Serving = field(default_factory=Serving)
    """The one that answers whoever asks the slot."""
    suspects: list[Deadline] = field(default_factory=list)

    def of(self, process: str) -> Serving:
        """What is known of a process."""
        known = self.processes.get(process)
        if known is None:
            known = self.processes[process] = self.newest = Serving(process)
        return known


@final
class FencedBrokerServesNoClient(Rule[_Slot]):
    """QC-17. A produce counts as new when it is stored. A fetch counts as new if it is answered
    later after the fence than the longest wait of a fetch. A probe records when it was sent. For a
    broker that does not notice the end of its lease, that end counts as the fence."""

    clause = "QC-17"
    keys = staticmethod(by_slot_serving)
    state = _Slot

    @on(RequestRefused)
    def _refused(self, state: _Slot, event: Event, body: RequestRefused) -> Findings:
        known = state.of(event.process)
        if known.refuses(event, body) and known.lost is not None:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @on(NodeStarted, ProcessSpawned, BrokerStateChanged, LeaseGranted)
    def _changed(self, state: _Slot, event: Event, body: Struct) -> Findings:
        """The broker's state or its lease changes, or its next process starts: the slot's newest
        from then on. One that tells nothing of itself is known to the harness."""
        if isinstance(body, ProcessSpawned):
            state.of(body.started)
            return NOTHING
        known = state.of(event.process)
        match body:
            case BrokerStateChanged():
                known.changed(event, body)
            case LeaseGranted(next_state="ACTIVE"):
                known.ends_ns = max(body.ends_at_ns, 0 if known.granted is None else known.ends_ns)
                known.granted = event.ref
        return NOTHING

    @on(LogAppended, FetchServed)
    def _served(self, state: _Slot, event: Event, body: LogAppended | FetchServed) -> Findings:
        known = state.processes.get(event.process)
        # The common case: it is active, and nothing is known that would forbid it.
        if known is None or (known.lost is None and not (known.active and known.granted)):
            return NOTHING
        stored = isinstance(body, LogAppended)
        # A fetch may have been admitted before the fence, and parked for the longest wait.
        came_ns = event.at_ns - (0 if stored else FETCH_WAIT_NS)
        if known.lost is not None and came_ns >= known.lost_ns:
            since_ns, ref, what = known.lost_ns, known.lost, "it had been fenced"
        # A broker that does not notice the end of its lease never says that it is fenced. So the
        # end itself counts, by the lease that it was granted.
        elif known.active and known.granted and came_ns > known.ends_ns + SLACK_NS:
            since_ns, ref, what = known.ends_ns, known.granted, "its lease had ended"
        else:
            return NOTHING
        over_ns = event.at_ns - since_ns
        done = "stored a client's write to" if stored else "served a fetch of"
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} {done} {partition} {after_ns} after {what}",
            (ref,),
            process=process_scope(event.process),
            done=done,
            partition=partition_of(body),
            after_ns=over_ns,
            what=what,
            stored=stored,
            fenced=known.lost == ref,
        )
        if stored and known.lost is not None:
            return (broken,)
        # Only a stall of nearly the length of the delay excuses it: a fetch may have come before.
        late = Deadline(
            broken, (event.process,), since_ns, event.at_ns, over_ns * 9, omission=False
        )
        state.suspects.append(late)
        return NOTHING

    @on(ProbeCompleted)
    def _probed(self, state: _Slot, event: Event, body: ProbeCompleted) -> Findings:
        known = state.newest
        if known.lost is None or body.sent_at_ns <= known.lost_ns:
            return NOTHING
        if body.outcome == "answered" and body.api in FOR_CLIENTS:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{process} answered a {api} of {client} sent {after_ns} after it had been fenced",
                (known.lost,),
                process=process_scope(known.process),
                api=body.api,
                client=process_scope(event.process),
                after_ns=body.sent_at_ns - known.lost_ns,
            )
            return (broken,)
        if known.refused_probe(event, body):
            return (Exercised(event.ref, Evidence.CLIENT),)
        return NOTHING

    def end(self, state: _Slot, end: RunEnd) -> Findings:
        return judged(state.suspects, end)


@final
class StartingBrokerServesNoClient(Rule[Serving]):
    """REG-05. From the start of a process until it is active for the first time. That it started is
    the word of the harness, too: a broker that kept silent about its start was judged by nobody."""

    clause = "REG-05"
    keys = staticmethod(by_slot_serving)

    def start(self, key: Key, shared: Shared) -> Serving:
        # A process that was not seen to start may have been active before.
        return Serving(was_active=True)

    @on(ProcessSpawned, NodeStarted)
    def _started(
        self, state: Serving, event: Event, body: ProcessSpawned | NodeStarted
    ) -> Findings:
        process = process_begun(event, body)
        # Both words are about one start, and the node's may come after it was active.
        if body.role == "broker" and process != state.process:
            state.begin(process)
            state.started_ns = event.at_ns
        return NOTHING

    @on(BrokerStateChanged)
    def _changed(self, state: Serving, event: Event, body: BrokerStateChanged) -> Findings:
        state.process = state.process or event.process
        if body.new == "ACTIVE":
            state.former.add(event.process)
        if not state.was_active and event.process == state.process:
            state.changed(event, body)
        return NOTHING

    @on(LogAppended, FetchServed, ProduceAnswered)
    def _served(
        self, state: Serving, event: Event, body: LogAppended | FetchServed | ProduceAnswered
    ) -> Findings:
        refused = isinstance(body, ProduceAnswered) and body.error != "NONE"
        if state.was_active or refused or event.process in state.former:
            return NOTHING
        done = {LogAppended: "stored a write to", FetchServed: "served"}
        stored = isinstance(body, LogAppended)
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} {done} {partition} before it had ever been active",
            process=process_scope(event.process),
            done=done.get(type(body), "acknowledged a write to"),
            partition=partition_of(body),
            stored=stored,
        )
        return (broken,)

    @on(RequestRefused)
    def _refused(self, state: Serving, event: Event, body: RequestRefused) -> Findings:
        if not state.was_active and state.refuses(event, body):
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @on(ProbeCompleted)
    def _probed(self, state: Serving, event: Event, body: ProbeCompleted) -> Findings:
        if state.was_active or body.sent_at_ns <= state.started_ns:
            return NOTHING
        if body.outcome == "answered" and body.api in FOR_CLIENTS:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{process} answered a {api} of {client} before it had ever been active",
                process=process_scope(state.process),
                api=body.api,
                client=process_scope(event.process),
            )
            return (broken,)
        if state.refused_probe(event, body):
            return (Exercised(event.ref, Evidence.CLIENT),)
        return NOTHING


@dataclass(slots=True)
class _Claimed:
    """The incarnation of each process, and the newest incarnation that each node has replayed."""

    identities: dict[str, tuple[int, str]] = field(default_factory=dict)
    """broker process -> id, incarnation."""
    order: dict[int, dict[str, int]] = field(default_factory=dict)
    """id -> incarnation -> offset of its first record."""
    told: dict[tuple[int, int], str] = field(default_factory=dict)
    """id, offset -> the incarnation in that record, by the first word of it."""
    known: dict[tuple[str, str], dict[int, str]] = field(default_factory=dict)
    """(process, role) of a node -> id -> the incarnation it replayed last."""
    takeover: dict[tuple[str, str, int], Cause] = field(default_factory=dict)
    given_back: set[tuple[int, str]] = field(default_factory=set)
    """Ids and incarnations that held an id again after they had lost it."""
    active: set[str] = field(default_factory=set)
    informed: dict[str, Cause] = field(default_factory=dict)
    """process -> the refusal from which it learned that it had lost its id."""
    claimants: list[tuple[int, str, Violated]] = field(default_factory=list)
    """Fetches that count for a process which no record has given the id so far: id, incarnation,
    and the violation that it is if none ever does. A node may replay that record later."""
    ended: set[str] = field(default_factory=set)
    answering: bool = False
    """Whether any controller tells of its answers."""
    kept_out: list[Violated] = field(default_factory=list)
    """Refusals of newer processes that only these tell of."""

    def holder(self, broker: int, incarnation: str) -> str | None:
        """The live process that has this id, if the incarnation has never had it, and no third
        process claims it: such a one may have won."""
        order = self.order.get(broker)
        if not order or incarnation in order:
            return None
        living = {
            identity[1]: process
            for process, identity in self.identities.items()
            if identity[0] == broker and process not in self.ended
        }
        newest = max(order, key=lambda one: order[one])
        return living.get(newest) if len(living.keys() | {incarnation}) == 2 else None

    def lost_at(self, node: tuple[str, str], broker: int, incarnation: str) -> bool:
        """Whether this incarnation has lost the id to a newer one, by the records that a node has
        replayed."""
        newest = self.known.get(node, _NO_BROKERS).get(broker)
        if newest is None:
            return False
        order = self.order[broker]
        # By the offsets of the first records. An incarnation without a record has not had the id,
        # and has lost nothing.
        return order.get(incarnation, 1 << 62) < order[newest]

    def winner(self, node: tuple[str, str], broker: int) -> Scope | str:
        """The process that has the id, by the records that a node has replayed; its incarnation if
        the process is not known."""
        newest = self.known[node][broker]
        for process, identity in self.identities.items():
            if identity == (broker, newest):
                return process_scope(process)
        return newest

    def lost(self, process: str) -> bool:
        """Whether any node has replayed a newer registration of the id than this process's."""
        broker, incarnation = self.identities.get(process, (-1, ""))
        order = self.order.get(broker)
        if order is None or incarnation not in order:
            return False
        return order[incarnation] < max(order.values())


_NO_BROKERS: dict[int, str] = {}


@final
class LoserOfIdCountsForNothing(Rule[_Claimed]):
    """QC-19. A node must refuse the loser of an id once it has itself replayed the newer
    registration; before that it cannot know. A process that claims an id that another has, and is
    given it by no record, loses, too. The loser itself reports the refusal it got. No record
    may ever give the id back to it, whatever was deleted in between. And no controller may refuse
    the newer of two live processes: it wins. What that one tells of it counts where no controller
    tells of its answers."""

    clause = "QC-19"
    state = _Claimed

    @on(FollowerFetched)
    def _fetched(self, state: _Claimed, event: Event, body: FollowerFetched) -> Findings:
        follower = body.follower
        identity = state.identities.get(body.client)
        node = (event.process, "broker")
        holder = state.known.get(node, _NO_BROKERS).get(follower)
        own = "" if identity is None else identity[1]
        unnamed = bool(own) and own not in state.order.get(follower, ())
        if holder is not None and (body.broker_epoch < 0 or unnamed):
            unregistered = violated(
                event.ref,
                Evidence.SELF,
                "{process} counted a fetch of {partition} by {client}, which never had broker id "
                "{broker}",
                (state.takeover[*node, follower],),
                process=process_scope(event.process),
                partition=partition_of(body),
                client=process_scope(body.client),
                broker=broker_of(follower),
            )
            if body.broker_epoch < 0:  # it says itself that it has not registered
                return (unregistered,)
            state.claimants.append((follower, own, unregistered))
            return NOTHING
        if len(state.order.get(follower, ())) < 2:
            return NOTHING  # no other process has had this id
        if identity is None or not state.lost_at(node, follower, identity[1]):
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} counted a fetch of {partition} by {client}, which had lost broker id "
            "{broker} to {other}",
            (state.takeover[*node, follower],),
            process=process_scope(event.process),
            partition=partition_of(body),
            client=process_scope(body.client),
            broker=broker_of(follower),
            other=state.winner(node, follower),
        )
        return (broken,)

    @on(NodeStarted, ProcessExited, RequestRefused, HeartbeatRefused, BrokerStateChanged)
    def _changed(self, state: _Claimed, event: Event, body: Struct) -> Findings:
        """A process starts or ends, changes its state, or is refused."""
        match body:
            case NodeStarted(role="broker"):
                state.identities[event.process] = (body.node_id, body.incarnation)
            case RequestRefused() if body.requester >= 0:
                identity = state.identities.get(body.client)
                node = (event.process, "broker")
                if identity is not None and state.lost_at(node, *identity):
                    return (Exercised(event.ref, Evidence.SELF),)
            case HeartbeatRefused() if body.error in _TAKEN_OVER and state.lost(event.process):
                state.informed.setdefault(event.process, event.ref)
                return (Exercised(event.ref, Evidence.PEER),)
            case HeartbeatRefused(broker_epoch=-1) if body.error not in NOT_FOR_THE_ID:
                broker, incarnation = state.identities.get(event.process, (-1, ""))
                state.kept_out += self._kept_out(
                    state, event, event.process, broker, incarnation, by=Evidence.PEER
                )
            case ProcessExited():
                state.ended.add(body.ended)
            case BrokerStateChanged() if body.new == "ACTIVE":
                state.active.add(event.process)
            case BrokerStateChanged():
                state.active.discard(event.process)
        return NOTHING

    @on(BrokerCommitted)
    def _committed(self, state: _Claimed, event: Event, body: BrokerCommitted) -> Findings:
        told = state.told.setdefault((body.broker_id, body.offset), body.incarnation)
        if told != body.incarnation:
            return NOTHING  # a node misquotes it, and nobody has lost the id by that
        order = state.order.setdefault(body.broker_id, {})
        first = order.setdefault(body.incarnation, body.offset)
        # Incarnations that registered between this one's first record and this record: if there are
        # any, the id had passed on, and comes back.
        winners = [one for one, at in order.items() if first < at < body.offset]
        # In a combined process the controller may have replayed what the broker has not. Each is
        # held to what it knows itself.
        for role in (body.role,) if body.role else ("broker", "controller"):
            known = state.known.setdefault((event.process, role), {})
            if known.get(body.broker_id) != body.incarnation:
                known[body.broker_id] = body.incarnation
                state.takeover[event.process, role, body.broker_id] = event.ref
        if not winners or (body.broker_id, body.incarnation) in state.given_back:
            return NOTHING
        state.given_back.add((body.broker_id, body.incarnation))
        broken = violated(
            event.ref,
            Evidence.SELF,
            "the record at {offset} gives broker id {broker} back to incarnation {incarnation}, "
            "which had lost it to {other_incarnation}",
            offset=body.offset,
            broker=broker_of(body.broker_id),
            incarnation=body.incarnation,
            other_incarnation=winners[-1],
        )
        return (broken,)

    @on(HeartbeatAnswered, ChangeAnswered)
    def _answered(
        self, state: _Claimed, event: Event, body: HeartbeatAnswered | ChangeAnswered
    ) -> Findings:
        if isinstance(body, HeartbeatAnswered):
            broker, incarnation, api = body.broker_id, body.incarnation, "heartbeat"
            state.answering = True
            registers = body.request_epoch < 0 and body.active and body.error != "NONE"
            if registers and body.error not in NOT_FOR_THE_ID:
                refused = self._kept_out(
                    state, event, body.client, broker, incarnation, by=Evidence.SELF
                )
                if refused:
                    return refused
        else:
            broker, incarnation = state.identities.get(body.client, (-1, ""))
            api = body.api
            if api != "AlterIsr":
                return NOTHING
        node = (event.process, "controller")
        if not state.lost_at(node, broker, incarnation):
            return NOTHING
        # A standby refuses everybody, so its refusal shows nothing of this promise.
        if body.error != "NONE":
            acted = body.error != "NOT_CONTROLLER"
            return (Exercised(event.ref, Evidence.SELF),) if acted else NOTHING
        if isinstance(body, ChangeAnswered):
            newest = state.order[broker][state.known[node][broker]]
            if 0 <= body.offset < newest:
                return NOTHING  # the change came first; only its answer came later
            asked = event.cause
            if asked is not None and asked.request and asked.process != body.client:
                return NOTHING  # it names two that asked, and only one of them has lost the id
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} accepted a {api} of {client}, which had lost broker id {broker} to {other}",
            (state.takeover[*node, broker],),
            process=process_scope(event.process),
            api=api,
            client=process_scope(body.client),
            broker=broker_of(broker),
            other=state.winner(node, broker),
        )
        return (broken,)

    @staticmethod
    def _kept_out(
        state: _Claimed, event: Event, process: str, broker: int, incarnation: str, *, by: Evidence
    ) -> tuple[Violated, ...]:
        """A process is refused as it registers, for a reason that has to do with its id."""
        holder = state.holder(broker, incarnation)
        if holder is None:
            return ()
        broken = violated(
            event.ref,
            by,
            "{process} was refused broker id {broker} in favour of {other}, which is the older one",
            process=process_scope(process),
            broker=broker_of(broker),
            other=process_scope(holder),
        )
        return (broken,)

    @on(HeartbeatSent)
    def _goes_on(self, state: _Claimed, event: Event, body: HeartbeatSent) -> Findings:
        # Judged by its next heartbeat: a step is allowed to change the state after the refusal.
        informed = state.informed.pop(event.process, None)
        if informed is None or event.process not in state.active:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} learned that it had lost its id and stays active",
            (informed,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    def end(self, state: _Claimed, end: RunEnd) -> Findings:
        never = [
            one for id_, incarnation, one in state.claimants if incarnation not in state.order[id_]
        ]
        if not state.answering:
            never += state.kept_out
        return never if end.complete else [Undecided.of(one) for one in never]
