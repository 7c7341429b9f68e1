"""Random schedules, for situations that no suite was written for.

`conduct` lets a system's `FaultChooser` draw one operation after another against a run: a fault, or
what an administrator asks for. Of several it takes one whose victims are in a state that it has
seldom met. Clients probe the victims in between. `run_one` is a whole run of that kind. The run's
schedule.json records the operations, as for any run; `follow_one` is a whole run that follows such
a record.

See docs/decisions/19-schedules.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random  # noqa: TID251 - the schedule's own seeded stream
from typing import final

from fencepost.events import ClientFailed, Event
from fencepost.events.names import is_client
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import MS
from fencepost.model.errors import FencepostError, PluginFailed, UsageError, Violation
from fencepost.model.faults.fault import FaultFactory
from fencepost.model.faults.handles import why_not
from fencepost.model.faults.random_faults import (
    Administration,
    ChoosesFaults,
    FaultChooser,
    Grows,
    Moment,
    Planned,
)
from fencepost.model.runtime import Powered, let_pass_until
from fencepost.model.system.attachment import Attached
from fencepost.model.system.capabilities import System
from fencepost.plugins.manager import Plugins
from fencepost.runs import coverage
from fencepost.runs.coverage import Met
from fencepost.runs.default_faults import DefaultFaultChooser, WithApps
from fencepost.runs.faults import Active
from fencepost.runs.run import Run, RunResult, RunSpec
from fencepost.runs.schedule import Schedule
from fencepost.workloads.workers import Administers

MOST_AT_ONCE = 3
DRAWN = 0.5
"""How often a step of the schedule is an operation, if one more is allowed; otherwise a client
probes."""
QUIET_MS = (100, 900)
"""The shortest and the longest pause between two steps of the schedule."""
CANDIDATES = 4
"""From how many draws an operation is chosen."""


@final
@dataclass(frozen=True, slots=True)
class Preference:
    """Which operations a schedule prefers, as data.

    An operation whose victims are in a state that it met k times before is chosen with a weight of
    1 / (1 + k)^2; `met` has what earlier runs met. `weights` are further factors by the names of
    operations, 1 for all others; an operation with 0 is never drawn.
    """

    met: coverage.Counts = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Lasting:
    """A fault that is not healed yet."""

    until_ns: int
    active: Active
    planned: Planned


@final
@dataclass(frozen=True, slots=True)
class Conducted:
    """A run under a random schedule; without a `result` the cluster did not get ready. `trouble` is
    the failure that is not a violation, in one sentence; `lost` has one sentence for each client
    that failed."""

    folder: RunFolder
    result: RunResult | None
    trouble: str
    lost: tuple[str, ...] = ()
    met: coverage.Counts = field(default_factory=dict)
    """Which operations met their victims in which states."""
    drawn_ms: int = 0
    """For how long operations were drawn, or followed."""
    operations: int = 0
    """How often an administrator asked for something."""
    whole: bool = False
    """Whether the run reached its planned end."""
    plugin_failed: bool = False
    """Whether that was because code of a plugin raised."""


def offered(faults: Mapping[str, FaultFactory], system: System) -> Collection[str]:
    """The faults that may be drawn: on an attached cluster, those for which it has the handles."""
    lacks = system.attachment().lacks if isinstance(system, Attached) else {}
    return [name for name, made in faults.items() if not why_not(made, lacks)]


def run_one(
    spec: RunSpec,
    plugins: Plugins,
    folder: RunFolder,
    span_ms: int,
    offered: Collection[str],
    *,
    at_once: int = MOST_AT_ONCE,
    preference: Preference = Preference(),
) -> Conducted:
    """One run of `spec` under load, with the offered faults and administration for `span_ms` (no
    faults: neither), at most `at_once` faults at a time. The cluster gets the spares that its
    system has for schedules. Raises PluginFailed if code of a plugin keeps the run from starting.
    """

    def draw(run: Run) -> None:
        run.clients.load()
        conduct(run, spec.seed, span_ms, offered, at_once=at_once, preference=preference)

    return _conducted(_grown(spec) if offered else spec, plugins, folder, draw)


def follow_one(spec: RunSpec, plugins: Plugins, folder: RunFolder, planned: Schedule) -> Conducted:
    """One run of `spec` under load, with the operations of a schedule at their times. The cluster
    gets spares as for a schedule that is drawn."""

    def follow(run: Run) -> None:
        run.clients.load(planned.selectors)
        run.enter("inject")
        run.faults.follow(planned)

    return _conducted(_grown(spec), plugins, folder, follow)


def _grown(spec: RunSpec) -> RunSpec:
    """The run with the spares that operations may start."""
    if not isinstance(spec.system, Grows):
        return spec
    return replace(spec, shape=spec.system.grown(spec.shape))


def _conducted(
    spec: RunSpec, plugins: Plugins, folder: RunFolder, strike: Callable[[Run], None]
) -> Conducted:
    try:
        with Run.start(spec, plugins, folder) as run:
            trouble: FencepostError | Violation | None = None
            began_ns = run.runtime.now_ns()
            try:
                strike(run)
            except (FencepostError, Violation) as went_wrong:
                trouble = went_wrong
            drawn_ms = (run.runtime.now_ns() - began_ns) // MS
            result = run.finish()
            lost = tuple(failed_clients(run.runtime.events()))
            why = result.what_went_wrong(trouble)
            return Conducted(
                folder,
                result,
                why,
                lost,
                run.faults.met(),
                drawn_ms=drawn_ms,
                operations=run.faults.asked,
                whole=result.whole and not isinstance(trouble, FencepostError),
                plugin_failed=isinstance(trouble or result.trouble, PluginFailed),
            )
    except PluginFailed:  # it would end each further run, too
        raise
    except FencepostError as not_started:
        return Conducted(folder, None, str(not_started))


def failed_clients(events: Iterable[Event]) -> Iterator[str]:
    """A sentence for each client that failed for good."""
    for event in events:
        if isinstance(event.body, ClientFailed) and event.body.fatal:
            # Of a client that ended without a word, the harness tells, and names it.
            own = is_client(event.process)
            who = f"{event.process} failed, and worked no more: " if own else ""
            yield f"{who}{event.body.error}"


def conduct(
    run: Run,
    seed: int,
    span_ms: int,
    offered: Collection[str],
    *,
    at_once: int = MOST_AT_ONCE,
    preference: Preference = Preference(),
) -> None:
    """Draws operations, heals and probes for `span_ms`; then heals the faults that are still
    active."""
    if not isinstance(run.runtime, Powered):
        offered = frozenset(offered) - {"lose_power"}
    operations = run.plugins.workload(run.spec.clients).operations
    if offered:
        offered = frozenset(offered).union(operations)
    offered = frozenset(offered) - {name for name, w in preference.weights.items() if w <= 0}
    chooser = chooser_of(run.spec)
    run.faults.prefer(preference.met)
    conductor = _Conductor(
        run=run,
        random=Random(f"{seed}/schedule"),
        chooser=chooser,
        offered=offered,
        at_once=at_once,
        preference=preference,
        operations=operations,
    )
    conductor.conduct(span_ms)


def chooser_of(spec: RunSpec) -> FaultChooser:
    """What draws the operations of a run's random schedule: the system's own, or the default."""
    system, shape = spec.system, spec.shape
    bound_ms = system.recovery_bound_ms(shape)
    own = (
        system.fault_chooser(shape)
        if isinstance(system, ChoosesFaults)
        else DefaultFaultChooser(bound_ms)
    )
    struck = tuple(program.name for program in spec.programs if program.struck)
    return WithApps(own, DefaultFaultChooser(bound_ms, struck)) if struck else own


@final
@dataclass(slots=True)
class _Conductor:
    """A random schedule under way."""

    run: Run
    random: Random
    chooser: FaultChooser
    offered: Collection[str]
    at_once: int
    preference: Preference
    operations: Collection[str]
    """Those of administration among the offered."""
    lasting: list[_Lasting] = field(default_factory=list)
    due: list[tuple[int, Planned]] = field(default_factory=list)
    """The next beats of rhythms, with their times."""
    mending: dict[str, int] = field(default_factory=dict)

    def conduct(self, span_ms: int) -> None:
        """See `conduct`."""
        runtime = self.run.runtime
        end_ns = runtime.now_ns() + span_ms * MS
        while runtime.now_ns() < end_ns:
            # One round: a pause; heals that are due; then an operation, a probe of a client, or
            # neither.
            quiet_ms = self.random.randint(*QUIET_MS)
            self._pass_until(runtime.now_ns() + quiet_ms * MS)
            self._heal_due()
            planned = [*(one.planned for one in self.lasting), *(one for _, one in self.due)]
            # Also slots of beats that are to come: a rhythm has its victim until its last beat.
            affected = frozenset(name for one in planned for name in one.victims)
            draws = len(self.lasting) < self.at_once and self.random.random() < DRAWN
            drawn = self._draw(affected) if draws else None
            if isinstance(drawn, Administration):
                self.run.faults.administer(drawn.operation, drawn.arguments)
            elif drawn is not None:
                self._inject(drawn)
            elif not draws:
                # Sorted, since the order of a set differs from run to run, and the draw must not.
                self.run.clients.probe(self.random, sorted(affected))
        # At the end as at each heal: newest first, each after a last wait for its receipt.
        for one in reversed(self.lasting):
            one.active.await_receipt()
            one.active.heal()

    def _pass_until(self, at_ns: int) -> None:
        """Lets time pass, and injects what is due in it."""
        while self.due and self.due[0][0] <= at_ns:
            due_ns, planned = self.due.pop(0)
            let_pass_until(self.run.runtime, max(due_ns, self.run.runtime.now_ns()))
            self._heal_due()
            view = self.run.runtime.view
            # A beat needs a process to act upon. A victim that is down misses it, and the rhythm
            # goes on.
            runs = all(view.newest.get(name) in view.alive for name in planned.victims)
            if runs and self._may(planned):
                self._inject(planned)
            elif planned.then is not None:
                self._after(planned)
        let_pass_until(self.run.runtime, at_ns)

    def _heal_due(self) -> None:
        runtime = self.run.runtime
        due = [one for one in self.lasting if one.until_ns <= runtime.now_ns()]
        for one in reversed(due):  # the heal of a later fault may bring about what it waits for
            self.lasting.remove(one)
            one.active.await_receipt()
            one.active.heal()
            healed = one.planned.victims if one.planned.ends else ()
            # Links that were healed may carry nothing yet: a fault on them in this time would find
            # them idle, and have no receipt.
            mends_ns = runtime.now_ns() + self.chooser.mending_ms * MS
            self.mending.update(dict.fromkeys(healed, mends_ns))

    def _draw(self, affected: frozenset[str]) -> Planned | Administration | None:
        """One of several operations that the chooser draws: most likely one whose victims are in a
        state that it has seldom met."""
        runtime, faults = self.run.runtime, self.run.faults
        now_ns = runtime.now_ns()
        still = frozenset(n for n, until in self.mending.items() if until > now_ns)
        offered = self.offered
        clients = self.run.clients
        if isinstance(clients, Administers) and clients.administering:
            offered = frozenset(offered).difference(self.operations)
        moment = Moment(
            view=runtime.view,
            layout=runtime.layout,
            offered=offered,
            affected=affected,
            mending=still,
            under=faults.under(),
            upon=faults.upon(),
            in_use=lambda links: runtime.in_use(links).true,
        )
        found = [self.chooser.draw(self.random, moment) for _ in range(CANDIDATES)]
        able = [one for one in found if one is not None and self._may(one)]
        if not able:
            return None
        # What this run has met counts like what earlier ones have.
        known = coverage.counted(faults.met()) + coverage.counted(self.preference.met)
        weights = [self._weight(one, known) for one in able]
        return self.random.choices(able, weights)[0]

    def _may(self, drawn: Planned | Administration) -> bool:
        """Whether nothing forbids an operation: a fault that is alone, or administration under way
        where the fault has to be alone."""
        # While a fault that is alone acts, its own victims may be struck again, and no other slot.
        only = {name for one in self.lasting if one.planned.alone for name in one.planned.victims}
        if isinstance(drawn, Administration):
            return not only
        clients = self.run.clients
        if drawn.alone:
            asks = isinstance(clients, Administers) and clients.administering
            return not (only or asks)
        return not only or drawn.victims <= only

    def _weight(self, drawn: Planned | Administration, known: Mapping[Met, int]) -> float:
        layout = self.run.runtime.layout
        name = drawn.fault if isinstance(drawn, Planned) else drawn.operation
        slots = [layout.slot(victim) for victim in sorted(drawn.victims)]
        states = {state for slot in slots for state in self.run.faults.states_of(slot)}
        # The state that was met least decides: an operation is worth drawing if it reaches one new
        # pair.
        least = min((known.get(Met(name, state), 0) for state in states), default=0)
        # The square: a pair that was met once is drawn a quarter as often, one that was met nine
        # times a hundredth as often, and none is ever ruled out.
        return self.preference.weights.get(name, 1.0) / (1 + least) ** 2

    def _inject(self, planned: Planned) -> None:
        """Injects a fault, and what follows it. One that does not fit the cluster is skipped, with
        what would follow: a schedule must not end for a draw of its own."""
        runtime, faults = self.run.runtime, self.run.faults
        try:
            active = faults.inject_named(planned.fault, planned.arguments)
        except UsageError as misfit:
            faults.skip(planned.fault, planned.arguments, str(misfit))
            return
        if any(one.planned.alone for one in self.lasting):
            # Whatever strikes the victim of a fault that is alone, is alone as well.
            planned = replace(planned, alone=True)
        until_ns = runtime.now_ns() + planned.for_ms * MS
        self.lasting.append(_Lasting(until_ns, active, planned))
        self._after(planned)

    def _after(self, planned: Planned) -> None:
        if planned.then is None:
            return
        # In the same instant: what follows brings about the message that a hold waits for.
        if planned.after_ms == 0:
            self._inject(planned.then)
            return
        at_ns = self.run.runtime.now_ns() + planned.after_ms * MS
        self.due = sorted([*self.due, (at_ns, planned.then)], key=lambda one: one[0])
