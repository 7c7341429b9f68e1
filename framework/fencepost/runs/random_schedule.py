"""Random schedules, for situations that no suite was written for.

`conduct` lets a system's `FaultChooser` draw one fault after another against a run, and lets
clients probe the victims in between; `run_one` is a whole run of that kind. The run's schedule.json
records the faults, as for any run; `follow_one` is a whole run that follows such a record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the schedule's own seeded stream
from typing import final

from fencepost.events import ClientFailed
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import MS
from fencepost.model.errors import FencepostError, Violation
from fencepost.model.faults.random_faults import ChoosesFaults, Moment, Planned
from fencepost.model.runtime import Powered, let_pass_until
from fencepost.plugins.manager import Plugins
from fencepost.runs.default_faults import DefaultFaultChooser
from fencepost.runs.faults import Active
from fencepost.runs.run import Run, RunResult, RunSpec
from fencepost.runs.schedule import Schedule

MOST_AT_ONCE = 2
QUIET_MS = (100, 900)
"""The shortest and the longest pause between two steps of the schedule."""


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


def run_one(
    spec: RunSpec,
    plugins: Plugins,
    folder: RunFolder,
    span_ms: int,
    offered: Collection[str],
    *,
    at_once: int = MOST_AT_ONCE,
) -> Conducted:
    """One run of `spec` under load, with the offered faults for `span_ms` (none: no faults), at
    most `at_once` of them at a time."""

    def draw(run: Run) -> None:
        run.clients.load()
        conduct(run, spec.seed, span_ms, offered, at_once=at_once)

    return _conducted(spec, plugins, folder, draw)


def follow_one(spec: RunSpec, plugins: Plugins, folder: RunFolder, planned: Schedule) -> Conducted:
    """One run of `spec` under load, with the faults of a schedule at their times."""

    def follow(run: Run) -> None:
        run.clients.load(planned.selectors)
        run.enter("inject")
        run.faults.follow(planned)

    return _conducted(spec, plugins, folder, follow)


def _conducted(
    spec: RunSpec, plugins: Plugins, folder: RunFolder, strike: Callable[[Run], None]
) -> Conducted:
    try:
        with Run.start(spec, plugins, folder) as run:
            trouble = ""
            try:
                strike(run)
            except (FencepostError, Violation) as went_wrong:
                trouble = str(went_wrong)
            result = run.finish()
            if result.recovered is not None and not result.recovered.recovered:
                trouble = f"not recovered: {'; '.join(result.recovered.missing)}"
            failed = (e.body for e in run.runtime.events() if isinstance(e.body, ClientFailed))
            lost = tuple(body.error for body in failed if body.fatal)
            return Conducted(folder, result, trouble or str(result.trouble or ""), lost)
    except FencepostError as not_started:
        return Conducted(folder, None, str(not_started))


def conduct(
    run: Run, seed: int, span_ms: int, offered: Collection[str], *, at_once: int = MOST_AT_ONCE
) -> None:
    """Draws faults, heals and probes for `span_ms`; then heals the faults that are still active."""
    random = Random(f"{seed}/schedule")
    if not isinstance(run.runtime, Powered):
        offered = frozenset(offered) - {"lose_power"}
    runtime, system = run.runtime, run.spec.system
    chooser = (
        system.fault_chooser(run.spec.shape)
        if isinstance(system, ChoosesFaults)
        else DefaultFaultChooser(run.base.recovery_bound_ms)
    )
    end_ns = runtime.now_ns() + span_ms * MS
    lasting: list[_Lasting] = []
    mending: dict[str, int] = {}
    alone_until_ns = 0
    while runtime.now_ns() < end_ns:
        quiet_ms = random.randint(*QUIET_MS)
        let_pass_until(run.runtime, run.runtime.now_ns() + quiet_ms * MS)
        due = [one for one in lasting if one.until_ns <= runtime.now_ns()]
        for one in reversed(due):  # the heal of a later fault may bring about what it waits for
            lasting.remove(one)
            one.active.await_receipt()
            one.active.heal()
            alone_until_ns = max(alone_until_ns, runtime.now_ns() + one.planned.mends_ms * MS)
            healed = one.planned.victims if one.planned.ends else ()
            mending.update(dict.fromkeys(healed, runtime.now_ns() + chooser.mending_ms * MS))
        affected = frozenset(name for one in lasting for name in one.planned.victims)
        alone = any(one.planned.alone for one in lasting) or runtime.now_ns() < alone_until_ns
        full = alone or len(lasting) >= at_once
        if not full and random.random() < 0.5:
            still = frozenset(n for n, until in mending.items() if until > runtime.now_ns())
            moment = Moment(runtime.view, runtime.layout, offered, affected, still)
            planned = chooser.draw(random, moment)
            while planned is not None:
                active = run.faults.inject_named(planned.fault, planned.arguments)
                until_ns = runtime.now_ns() + planned.for_ms * MS
                lasting.append(_Lasting(until_ns, active, planned))
                planned = planned.then
        else:
            run.clients.probe(random, sorted(affected))
    for one in reversed(lasting):
        one.active.await_receipt()
        one.active.heal()
