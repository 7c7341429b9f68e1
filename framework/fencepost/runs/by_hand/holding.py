"""A cluster in the hand: started by `fencepost cluster up`, broken and healed from a second
terminal.

    first terminal                       second terminal
    fencepost cluster up                 fencepost fault isolate broker-1 --for 10s
      Run.start                            one line to the socket  ----+
      HeldCluster.hold:                                                |
        take requests   <----------------------------------------------+
        carry each out, answer it    ------------------->  prints the receipt
        heal what is due
        let time pass, to the next beat
      Run.finish, report

A run is for one thread, so requests are carried out by the thread that owns it, between two steps
of `Runtime.advance`, and nothing is locked. A step ends at the latest with the runtime's next beat,
at which it wakes in any case: to look there whether anybody asks costs nothing, and an answer is
late by a beat at most. While a fault is measured nobody else is answered; those who ask wait in the
socket's queue.

A fault with a time is healed here, whether the second terminal is still there or not. Its time
counts from the end of its measurement, as that of a fault which ends by itself. A heal that fails
is said once, and tried again when the run ends.

A request that cannot be carried out is answered with its sentence, and the cluster goes on: a wrong
name must not end a cluster with a morning's work in it. What ends the run is raised by the next
`advance`.

In the simulated runtime time passes only here: as much as a beat for each beat of the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from fencepost.events import ProcessExited, kind_name
from fencepost.model.clock import BEAT_S, MS, SECOND
from fencepost.model.errors import FencepostError, InternalError, UsageError, Violation, no_such
from fencepost.model.runtime import Condition
from fencepost.model.system.status import tables_of
from fencepost.plugins.raising import by_plugin
from fencepost.runs.by_hand.arguments import arguments_from
from fencepost.runs.by_hand.channel import Asked, Channel
from fencepost.runs.by_hand.messages import (
    ALL,
    ActiveFault,
    Answer,
    AskStatus,
    EndCluster,
    Healed,
    HealedFault,
    HealFaults,
    Injected,
    InjectFault,
    NodeStatus,
    Refused,
    Status,
)
from fencepost.runs.faults import Active, lasting_ms
from fencepost.runs.run import Run
from fencepost.runs.schedule import resolve, selecting

_EXITED = kind_name(ProcessExited)
_BEAT_NS = int(BEAT_S * SECOND)


@final
class HeldCluster:
    """A run between its load and its end, at the command of second terminals."""

    def __init__(self, run: Run, channel: Channel, say: Callable[[str], None]) -> None:
        """`say` is called with a sentence for each thing that happened by itself: a node's end, a
        heal that was due."""
        self._run = run
        self._channel = channel
        self._say = say
        self._began_ns = run.runtime.now_ns()
        self._since_ns: dict[str, int] = {}
        """fault -> when it began."""
        self._due_ns: dict[str, int] = {}
        """fault -> when it is healed by itself."""
        self._later: list[tuple[int, AskStatus, Asked]] = []
        """Who asked for a later answer, and when it is due."""
        self._ends = 0
        """How many ends of processes were looked at."""

    def hold(self) -> Asked:
        """Keeps the cluster until a second terminal asks for its end; returns that request, which
        waits for its answer. Raises as `Runtime.advance` does."""
        # In the simulator nothing waits for the wall clock but this.
        wait_s = BEAT_S if self._run.spec.runtime == "simulated" else 0.0
        try:
            while True:
                ends = [one for one in self._channel.take(wait_s) if not self._takes(one)]
                if ends:
                    for other in ends[1:]:
                        other.drop()
                    return ends[0]
                self._do_what_is_due()
                self._let_pass()
        finally:
            for _, _, asked in self._later:
                asked.drop()

    def _takes(self, asked: Asked) -> bool:
        """Carries out what was asked, or keeps it for later; false for the end."""
        request = asked.request
        if isinstance(request, EndCluster):
            return False
        if isinstance(request, AskStatus) and request.after_ms:
            self._later.append((self._now_ns() + request.after_ms * MS, request, asked))
        else:
            asked.answer(self.answer_to(request))
        return True

    def answer_to(self, request: InjectFault | HealFaults | AskStatus) -> Answer:
        """Carries a request out, at once; a request that fails changes nothing and is refused."""
        try:
            match request:
                case InjectFault():
                    return self._inject(request)
                case HealFaults():
                    return self._heal(request.fault_id)
                case AskStatus():
                    return self.status()
        except (FencepostError, Violation) as error:
            return Refused(says=str(error), exit_code=error.exit_code)
        # A fault is code of a plugin, which may raise anything: that ends no cluster.
        except Exception as error:
            found = by_plugin(error) or InternalError(f"{type(error).__name__}: {error}")
            return Refused(says=str(found), exit_code=found.exit_code)

    def status(self) -> Status:
        """How the cluster is now."""
        run, runtime = self._run, self._run.runtime
        view, layout, under = runtime.view, runtime.layout, run.faults.under()
        nodes = []
        # Programs of the user's, too, which `[[tool.fencepost.app]]` started.
        for slot in (*layout.nodes(duplicates=True, spares=True), *layout.instances()):
            living = runtime.living(slot)
            process = living.name if living else view.newest.get(slot.name, "")
            # The slot of a duplicate or a spare that never ran is no node so far.
            if process or not (slot.duplicate or slot.spare):
                nodes.append(
                    NodeStatus(
                        name=slot.name,
                        role=slot.role,
                        process=process,
                        pid=living.pid if living else 0,
                        faults=tuple(under.get(slot.name, ())),
                    )
                )
        return Status(
            folder=str(run.folder.path),
            system=run.spec.system.name,
            runtime=run.spec.runtime,
            up_ms=(self._now_ns() - self._began_ns) // MS,
            missing=tuple(run.base.missing(view)),
            nodes=tuple(nodes),
            faults=tuple(self._shown(one) for one in self._active()),
            tables=tables_of(run.spec.system, view, layout),
        )

    def _inject(self, request: InjectFault) -> Injected:
        run = self._run
        # An unknown name is refused with the nearest one.
        factory = run.plugins.fault_factory(request.fault)
        arguments = arguments_from(request.fault, factory, request.words)
        select = selecting(run.spec.system, run.runtime.layout)
        resolved = resolve(arguments, run.runtime.view, select)
        if resolved is None:
            named = ", ".join(str(one) for one in arguments.values() if str(one).startswith("@"))
            raise UsageError(f"no node is {named} now")
        fault = run.plugins.fault(request.fault, **resolved)
        began_ns = self._now_ns()
        active = run.faults.begin(fault)
        self._since_ns[active.fault_id] = began_ns
        lasts_ms = lasting_ms(fault) if request.for_ms is None else request.for_ms
        if lasts_ms is not None:
            self._due_ns[active.fault_id] = self._now_ns() + lasts_ms * MS
        return Injected(fault=self._shown(active))

    def _heal(self, fault_id: str) -> Healed:
        active = self._active()
        known = {one.fault_id: one for one in self._run.faults.injected}
        if fault_id != ALL and fault_id not in known:
            raise no_such("fault", fault_id, known)
        # Newest first, as at the end of a run: a later fault may rest on what an earlier one did.
        chosen = [one for one in reversed(active) if fault_id in (ALL, one.fault_id)]
        return Healed(faults=tuple(map(self._healed, chosen)))

    def _healed(self, active: Active) -> HealedFault:
        receipt = active.heal()
        self._due_ns.pop(active.fault_id, None)
        return HealedFault(
            fault_id=active.fault_id, receipt=receipt.true, evidence=receipt.evidence
        )

    def _active(self) -> list[Active]:
        return [one for one in self._run.faults.injected if not one.healed]

    def _shown(self, active: Active) -> ActiveFault:
        # A fault that waits for its object may have its receipt by now.
        receipt = active.await_receipt(limit_ms=0)
        due_ns, now_ns = self._due_ns.get(active.fault_id), self._now_ns()
        return ActiveFault(
            fault_id=active.fault_id,
            fault=active.fault_id.rpartition("-")[0],
            arguments=active.arguments,
            targets=active.targets,
            receipt=receipt.true,
            evidence=receipt.evidence,
            question=receipt.question,
            since_ms=(now_ns - self._since_ns[active.fault_id]) // MS,
            heals_in_ms=None if due_ns is None else max(0, due_ns - now_ns) // MS,
        )

    def _do_what_is_due(self) -> None:
        now_ns = self._now_ns()
        for active in self._active():
            if self._due_ns.get(active.fault_id, now_ns + 1) <= now_ns:
                self._heal_at_its_time(active)
        ready = [one for one in self._later if one[0] <= now_ns]
        self._later = [one for one in self._later if one[0] > now_ns]
        for _, request, asked in ready:
            asked.answer(self.answer_to(request))

    def _heal_at_its_time(self, active: Active) -> None:
        del self._due_ns[active.fault_id]
        try:
            healed = self._healed(active)
        # As in `answer_to`. The run's end tries it again, and ends with its error if it fails then.
        except Exception as error:
            self._say(f"{active.fault_id} could not be healed: {error}")
        else:
            self._say(f"{healed.fault_id} is healed: {healed.evidence}")

    def _let_pass(self) -> None:
        """Lets time pass until the next beat, or what is due before it; tells of nodes that ended
        by themselves."""
        due_ns = [*self._due_ns.values(), *(at_ns for at_ns, *_ in self._later)]
        until_ns = min([self._now_ns() + _BEAT_NS, *due_ns])
        ends = self._ends
        another = Condition("another end", lambda view: view.kinds[_EXITED] > ends)
        if self._run.runtime.advance(another, until_ns) is None:
            return
        # Several may have ended at once, and the view knows the last one only.
        bodies = [one.body for one in self._run.runtime.events() if one.kind == _EXITED]
        for body in bodies[ends:]:
            if isinstance(body, ProcessExited) and not body.expected:
                self._say(f"{body.sentence()}; it is started again")
        self._ends = len(bodies)

    def _now_ns(self) -> int:
        return self._run.runtime.now_ns()
