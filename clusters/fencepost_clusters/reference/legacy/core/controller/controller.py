"""A broker's part as the controller: it stands for election, and decides during its terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, final

from fencepost import Cause
from fencepost_clusters.reference.core.cluster.changes import CHANGES, errors
from fencepost_clusters.reference.core.cluster.decisions import DecisionContext
from fencepost_clusters.reference.core.node.deadlines import earliest
from fencepost_clusters.reference.core.node.effects import Instant, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER, Settings
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.controller import election, isr_changes, shutdowns
from fencepost_clusters.reference.legacy.core.controller.announcer import KnownBroker
from fencepost_clusters.reference.legacy.core.controller.queues import Queues
from fencepost_clusters.reference.legacy.core.controller.store import Deposed, Occupied, Steps
from fencepost_clusters.reference.legacy.core.controller.term import Term
from fencepost_clusters.reference.legacy.core.policies import PlanePolicies
from fencepost_clusters.reference.legacy.core.states import CONTROLLER_NAMES, LIVE
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode
from fencepost_clusters.reference.over_zookeeper.core.session import (
    TRY_AGAIN_NS,
    Clock,
    Disconnected,
    Session,
)
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.legacy import BrokerState
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import (
    ChangeAnswered,
    ControllerBegan,
    ControllerEnded,
    MetadataHeartbeatAnswered,
    ZnodeUnreadable,
)


@final
class Controller:
    """See the module. `elected` is the holder of /controller, as far as this broker knows."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        clock: Clock,
        policies: PlanePolicies,
        out: Outbox,
    ) -> None:
        self.elected: int | None = None
        self.term: Term | None = None
        self.queues = Queues(settings, policies.legacy.controller, out)
        self._settings = settings
        self._session = session
        self._clock = clock
        self._of_plane = policies
        self._policies = policies.legacy.controller
        self._out = out
        # Whether an attempt to be elected is under way.
        self._standing = False
        # For good: another process has this broker's id.
        self._resigned = False
        self._stand_again_ns: int | None = None
        """When it stands again, after a term could not begin."""
        self._former: Term | None = None
        """The newest term that has ended: only a defect decides by it."""
        self._next_balance_ns = 0

    # ----------------------------------------------------------------------------------- election

    def stand(self) -> None:
        """Stands for election, or learns which broker is elected. One attempt runs at a time: an
        attempt under way reads what has changed so far, and watches what changes later."""
        if self._resigned or self._standing or self._stand_again_ns is not None:
            return
        # The next connection starts an attempt.
        if self._session.connected is None:
            return
        self._standing = True
        self._session.start(self._stand(self._session.connected))

    def _stand(self, session: int) -> Steps:
        try:
            # From here on every `yield` is a time in which other inputs are handled. What was true
            # before it has to be asked again after it.
            outcome = yield from election.stand(self._settings.node_id, session)
        except Disconnected:
            self._standing = False
            return
        # A controller without an epoch could not be told from its predecessor. It gives /controller
        # up, and stands again, so that a repair of the znode is seen.
        except BadZnode as bad:
            self._standing = False
            self._out.note(ZnodeUnreadable(reason=str(bad)))
            self._stand_again_ns = self._clock.now.monotonic_ns + TRY_AGAIN_NS
            yield from election.resign(session)
            return
        self._standing = False
        if self._resigned:
            yield from election.resign(session)
            return
        # A term of this broker that still goes on is over: /controller belongs to another session.
        if isinstance(outcome, election.Lost):
            self.elected = outcome.controller
            if outcome.unreadable:
                self._out.note(ZnodeUnreadable(reason=outcome.unreadable))
            self._end("deposed")
            return
        self.elected = self._settings.node_id
        self._end("deposed")
        yield from self._begin_term(outcome)

    def _begin_term(self, won: election.Won) -> Steps:
        term = Term(
            won,
            self._settings,
            self.queues,
            policies=self._of_plane,
            out=self._out,
            clock=self._clock,
        )
        self.term = term
        self._next_balance_ns = self._clock.now.monotonic_ns + self._settings.ns(
            "leader.imbalance.check.interval.ms"
        )
        self._out.note(
            ControllerBegan(
                epoch=won.epoch,
                broker_id=self._settings.node_id,
                first=won.first,
                heartbeat_timeout_ms=self._settings.ms("controller.heartbeat.timeout.ms"),
                balance_ms=self._settings.ms("leader.imbalance.check.interval.ms")
                if self._settings.ms("auto.leader.rebalance.enable")
                else 0,
                session_timeout_ms=self._settings.ms("zookeeper.session.timeout.ms"),
            )
        )
        term.add(term.begin())
        yield from self._work(term)

    def _work(self, term: Term) -> Steps:
        """Runs the waiting jobs. If the connection is lost meanwhile, `lost_connection` ends the
        term."""
        try:
            yield from term.work()
        # A write was refused by the check of the controller's epoch. It stands again, if only to
        # learn which broker is the controller.
        except Deposed:
            self._end("deposed")
            self.stand()

    def resign(self) -> None:
        """Gives up the election, since another process has this broker's id (HB-24)."""
        self._resigned, self.elected = True, None
        self._end("deposed")
        if self._session.connected is not None and not self._standing:
            self._session.start(election.resign(self._session.connected))

    def lost_connection(self) -> None:
        """The session is suspended or has ended: this broker is not the controller now (HB-27).
        Another controller that it knows still gets its heartbeats (HB-28)."""
        # A suspended session may have ended already, with /controller, and another broker be
        # elected. This broker cannot know, so it decides nothing until it is connected again.
        if self.elected == self._settings.node_id:
            self.elected = None
        self._end("session")

    def _end(self, reason: Literal["session", "deposed"]) -> None:
        if self.term is not None:
            # Jobs that wait for an answer of ZooKeeper hold the term, and not this field: they see
            # the end there.
            self.term.store.over = True
            self._out.note(ControllerEnded(epoch=self.term.epoch, reason=reason))
            self._former, self.term = self.term, None
            # Requests that are not sent yet are dropped: they would carry the epoch of a former
            # controller, and the next one sends its own.
            self.queues.close_all()

    # -------------------------------------------------------------------------------------- driver

    def fired(self, fired: zk.Fired) -> None:
        """Handles a watch: of the controller's znode, a registration, or a partition's state."""
        if fired.path == znodes.CONTROLLER:
            self.stand()
        term = self.term
        if term is None:
            return
        if fired.path.startswith(znodes.BROKER_IDS):
            term.change_soon()
        # A watch fires once. The job that reads the znode sets it again.
        elif fired.path.endswith("/state") and fired.change is zk.ZnodeChange.DATA:
            term.add(self._state_changed(term, fired.path))

    def _state_changed(self, term: Term, path: str) -> Steps:
        """Reads a partition's state that this controller or a leader itself has written (HB-22)."""
        one = yield from term.store.refresh(path)
        if one is not None:
            term.announcer.announce_read(one)
            yield from term.settle([one], self._ready(term))

    def tick(self, now: Instant) -> None:
        """Stands again, declares silent brokers inactive, and returns leaderships to preferred
        replicas."""
        if self._stand_again_ns is not None and now.monotonic_ns >= self._stand_again_ns:
            self._stand_again_ns = None
            self.stand()
        term = self.term
        if term is not None and term.ready:
            self._find_silent(term, now)
            if now.monotonic_ns >= self._next_balance_ns:
                self._next_balance_ns = now.monotonic_ns + self._settings.ns(
                    "leader.imbalance.check.interval.ms"
                )
                every = term.store.image.all_partitions()
                term.add(term.settle(every, self._ready(term)))

    def go_on(self, now: Instant) -> None:
        """Runs the waiting jobs, and sends the control requests that are due."""
        term = self.term
        if term is not None and term.has_work:
            self._session.start(self._work(term))
        self.queues.tick(now)

    def _find_silent(self, term: Term, now: Instant) -> None:
        timeout_ns = self._settings.ns("controller.heartbeat.timeout.ms")
        for broker, known in term.brokers.items():
            silent = self._is_silent(known, now.monotonic_ns, timeout_ns)
            # The declaration is a job, and takes its turn. Without `suspected`, each Tick until
            # then would add another one.
            if silent and broker not in term.suspected:
                term.suspected.add(broker)
                term.add(self._declare_silent(term, broker, timeout_ns))

    def _declare_silent(self, term: Term, broker: int, timeout_ns: int) -> Steps:
        """Declares a broker inactive, unless a heartbeat arrived while this job waited."""
        term.suspected.discard(broker)
        known = term.brokers.get(broker)
        if known is not None and self._is_silent(known, self._clock.now.monotonic_ns, timeout_ns):
            yield from term.declare(broker, BrokerState.INACTIVE, "silent")

    def _is_silent(self, known: KnownBroker, now_ns: int, timeout_ns: int) -> bool:
        """Whether a live broker has been silent for the timeout (HB-09)."""
        silent_ns = now_ns - known.heard_ns
        return known.state in LIVE and self._policies.is_silent(
            known.version, silent_ns, timeout_ns
        )

    def deadline_ns(self) -> int | None:
        """When the next Tick is due."""
        term = self.term
        if term is None or not term.ready:
            return earliest((self.queues.deadline_ns(), self._stand_again_ns))
        timeout_ns = self._settings.ns("controller.heartbeat.timeout.ms")
        silent_ns = (
            known.heard_ns + timeout_ns
            for broker, known in term.brokers.items()
            if known.state in LIVE
            and broker not in term.suspected
            and self._policies.is_silent(known.version, timeout_ns, timeout_ns)
        )
        return earliest(
            (self.queues.deadline_ns(), self._stand_again_ns, self._next_balance_ns, *silent_ns)
        )

    def _ready(self, term: Term) -> frozenset[int]:
        """The brokers to which leaderships may return: active, and not stopping (RP-21)."""
        if not self._settings.ms("auto.leader.rebalance.enable"):
            return frozenset()
        return term.active

    # ---------------------------------------------------------------------------------- heartbeats

    def heartbeat(
        self, received: Received, asked: w.MetadataHeartbeatRequest, now: Instant
    ) -> None:
        """Answers a MetadataHeartbeat (HB-08 to HB-15, HB-27)."""
        term = self._deciding(self._policies.answers_as_controller)
        if term is None:
            self._answer(received, asked, None, -1, Error.NOT_CONTROLLER)
            return
        known = term.brokers.get(asked.broker_id)
        if self._is_malformed(known, asked):
            self._answer(received, asked, term, -1, Error.INVALID_REQUEST)
            return
        # The heartbeat may come before this controller has read the registration. It is answered
        # NONE with the state Initial: the broker is not admitted yet, and asks again soon.
        if known is None:
            term.change_soon()
            self._answer(received, asked, term, -1, Error.NONE)
            return
        before = known.incarnation
        if self._policies.is_old_incarnation(asked.incarnation_id, known.incarnation):
            self._answer(received, asked, term, before, Error.INVALID_INCARNATION_ID)
            return
        # When it arrives, and not when its job runs: a broker must not be declared inactive because
        # jobs waited.
        known.heard_ns = now.monotonic_ns
        target = BrokerState(asked.target_state)
        settled = known.state is self._policies.settled_state(known.state, target)
        if asked.incarnation_id > known.incarnation:
            known.incarnation = asked.incarnation_id
            term.change_soon()  # a new incarnation is a bounce, which the job handles (HB-13)
        # Nothing changes, so no job is needed. All but a few heartbeats end here.
        elif settled and known.initialised == known.incarnation:
            self._answer(received, asked, term, before, Error.NONE)
            return
        cause = self._out.cause
        term.add(self._settle_state(term, received, asked, before, cause))

    def _is_malformed(self, known: KnownBroker | None, asked: w.MetadataHeartbeatRequest) -> bool:
        endpoint = known is None or known.registration.endpoint(REPLICATION_LISTENER) is not None
        return self._policies.is_malformed(asked.broker_id, endpoint, asked.target_state)

    def _settle_state(
        self,
        term: Term,
        received: Received,
        asked: w.MetadataHeartbeatRequest,
        before: int,
        cause: Cause | None,
    ) -> Steps:
        """Puts a broker in the target state of its heartbeat, and then answers."""
        # Asked again, since jobs ran in between: the broker's process may be another one by now.
        known = term.brokers.get(asked.broker_id)
        current = known is not None and known.incarnation == asked.incarnation_id
        malformed = self._is_malformed(known, asked)  # the registration may be read only now
        registered = known is not None and known.initialised == known.incarnation
        if known is not None and current and registered and not malformed:
            state = self._policies.settled_state(known.state, BrokerState(asked.target_state))
            yield from term.declare(asked.broker_id, state, "heartbeat")
        error = Error.INVALID_REQUEST if malformed else Error.NONE
        if known is not None and self._policies.is_old_incarnation(
            asked.incarnation_id, known.incarnation
        ):
            error = Error.INVALID_INCARNATION_ID  # another process has registered meanwhile
        with self._out.caused_by(cause):
            self._answer(received, asked, term, before, error)

    def _answer(
        self,
        received: Received,
        asked: w.MetadataHeartbeatRequest,
        term: Term | None,
        known: int,
        error: Error,
    ) -> None:
        broker = term.brokers.get(asked.broker_id) if term is not None else None
        state = broker.state if broker is not None else BrokerState.INITIAL
        self._out.note(
            MetadataHeartbeatAnswered(
                client=received.client,
                broker_id=asked.broker_id,
                incarnation_id=asked.incarnation_id,
                known=known,
                target_state=asked.target_state,
                error=error.name,
                state=CONTROLLER_NAMES[state] if broker is not None else "Absent",
                controller_epoch=-1 if term is None else term.epoch,
                active=self.term is not None,
            )
        )
        answer = w.MetadataHeartbeatResponse(error_code=error, current_state=state)
        self._out.add(Reply(received.request_id, answer))

    def _deciding(self, policy: Callable[[bool, bool], bool]) -> Term | None:
        """The term in which a request is decided; None if this broker is not the controller."""
        is_controller = self.term is not None and self.term.ready
        if not policy(is_controller, self._former is not None):
            return None
        return self.term if is_controller else self._former

    # ------------------------------------------------------------------------------- other requests

    def isr_change(self, received: Received, asked: w.IsrChangeRequest) -> None:
        """Judges an IsrChange, stores it, and answers (HB-16 to HB-21)."""
        term = self._deciding(self._policies.judges_isr_changes)
        if term is None:
            isr_changes.answer(self._out, received, asked, isr_changes.refused(asked))
            return
        if term.store.over:  # only a defect decides in a term that has ended, and stores nothing
            judged = isr_changes.judge(term, asked, self._policies, active=False)
            isr_changes.answer(self._out, received, asked, judged)
            return
        job = isr_changes.job(
            term,
            received,
            asked,
            policies=self._policies,
            out=self._out,
            active=self.term is not None,
        )
        term.add(self._then_settle(term, job, asked))

    def _then_settle(self, term: Term, job: Steps, asked: w.IsrChangeRequest) -> Steps:
        yield from job
        image = term.store.image
        places: list[Partition] = []
        for topic in asked.topics:
            for one in topic.partitions:
                found = image.partition(topic.topic_name, one.partition_index)
                if found is not None:
                    places.append(found)
        yield from term.settle(places, self._ready(term))

    def controlled_shutdown(self, received: Received, asked: w.ControlledShutdownRequest) -> None:
        """Moves leaderships off a stopping broker, and answers with those that are left (BE-04)."""
        term = self.term
        if term is None or not term.ready:
            shutdowns.answer(self._out, received, asked, Error.NOT_CONTROLLER)
            return
        job = shutdowns.job(
            term,
            received,
            asked,
            policies=self._policies,
            out=self._out,
            cause=self._out.cause,
        )
        term.add(job)

    def change(self, received: Received) -> None:
        """Decides an administrator's request as a job, and answers once the change is stored."""
        term = self.term
        if term is None or not term.ready:
            answer = CHANGES.refused(received.message, Error.NOT_CONTROLLER)
            self._out.add(Reply(received.request_id, answer))
            return
        term.add(self._change(term, received, self._out.cause))

    def _change(self, term: Term, received: Received, cause: Cause | None) -> Steps:
        answers: list[m.Response] = []
        image = term.store.image
        before = {(p.topic_id, p.index): p.replicas for p in image.all_partitions()}

        # Called again if a znode has changed since it was read, so each decision is upon what is
        # stored. The last answer is the one that counts.
        def decide() -> tuple[r.Record, ...]:
            context = DecisionContext(
                image=image,
                ready=term.active,
                settings=self._settings,
                policies=self._of_plane.cluster,
                topic_id=lambda name, before: znodes.topic_id(name),
            )
            decided = CHANGES.decide(context, received.message)
            answers.append(decided.answer)
            return decided.records

        try:
            records = yield from term.store.carry_out(decide)
        except Occupied as occupied:
            self._out.note(ZnodeUnreadable(reason=f"{occupied} exists and is not known"), cause)
            made = isinstance(received.message, m.CreateTopicsRequest)
            error = Error.TOPIC_ALREADY_EXISTS if made else Error.UNKNOWN_SERVER_ERROR
            records, answers = (), [CHANGES.refused(received.message, error)]
        after = {(p.topic_id, p.index) for p in image.all_partitions()}
        # Brokers are told what is stored, and only then is the client.
        term.announcer.announce(records, new=after - before.keys())
        term.announcer.stop_removed(before, records)
        if any(isinstance(one, r.TopicRecord) and one.deleting for one in records):
            term.announcer.continue_deletions()
        answer = answers[-1]
        answered = ChangeAnswered(
            api=CHANGES.name(received.message),
            client=received.client,
            error=next(errors(answer), Error.NONE).name,
            offset=-1,
            high_watermark=-1,
            controller_epoch=term.epoch,
        )
        self._out.note(answered, cause)
        self._out.add(Reply(received.request_id, answer))
