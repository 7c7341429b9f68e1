"""The faults of a run, each recorded with its receipt, and healed even after an error; and what its
schedule has an administrator ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, final

import msgspec
from msgspec.structs import replace

from fencepost.events import (
    Administered,
    Event,
    FaultHealed,
    FaultInjected,
    FaultIntended,
    FaultTookEffect,
)
from fencepost.events.run import TO, WAS
from fencepost.model.clock import MS
from fencepost.model.cluster import InSlot
from fencepost.model.errors import UsageError
from fencepost.model.faults.fault import Fault, Injected, Passing
from fencepost.model.faults.handles import Limited, why_not
from fencepost.model.runtime import Condition, Receipt, Runtime, let_pass_until
from fencepost.model.system.topology import Slot
from fencepost.model.view import View
from fencepost.plugins.manager import Plugins
from fencepost.runs import coverage, schedule
from fencepost.runs.schedule import Asked, Injection, Kind, Schedule, Select, Skipped
from fencepost.workloads.workers import Administers


def lasting_ms(fault: Fault) -> int | None:
    """How long a fault lasts that ends by itself; None for one that lasts until it is healed."""
    return fault.lasts_ms if isinstance(fault, Passing) else None


States = Callable[[Slot, Collection[str]], Sequence[str]]
"""The states that a slot is in now, given the names of the faults that affect it."""


@final
class Active:
    """An injected fault. Used in `with`, it heals at the end of the block."""

    def __init__(
        self,
        fault_id: str,
        injected: Injected,
        heal: Callable[[], Receipt],
        measure: Callable[[int], Receipt],
        victims: Sequence[str] = (),
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.fault_id = fault_id
        self.arguments = arguments or {}
        """Those of the fault, as plain data."""
        self.victims = victims
        """The names of the slots that it is aimed at."""
        self.targets = injected.targets
        self.directions = injected.directions
        self.receipt = injected.receipt
        self._heal = heal
        self._measure = measure
        self._healed: Receipt | None = None

    @property
    def healed(self) -> bool:
        """Whether it was healed."""
        return self._healed is not None

    def await_receipt(self, limit_ms: int = 10_000) -> Receipt:
        """Lets time pass until the fault has its receipt; a fault may have to wait for its
        object."""
        if not self.receipt.true and not self.healed:
            self.receipt = self._measure(limit_ms)
        return self.receipt

    def heal(self) -> Receipt:
        """Heals the fault; a second call changes nothing and returns the first receipt."""
        if self._healed is None:
            # A last measurement: once it is healed, nothing can show any more that it took effect.
            self.await_receipt(limit_ms=0)
            # Stored only if it succeeded: a heal that raised is tried again by `heal_all`.
            self._healed = self._heal()
        return self._healed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.heal()


@final
class Faults:
    """Injects faults by name: `faults.kill(node)`, for every fault that a loaded plugin offers.

    Nodes may be given as `Node`s, as names, or as sequences of either. Every injection is an event
    and an entry in the run's schedule.json.
    """

    def __init__(
        self,
        runtime: Runtime,
        plugins: Plugins,
        record: Path,
        select: Select,
        *,
        states: States | None = None,
        clients: object = None,
    ) -> None:
        """`record` is the schedule.json to write; its times count from now. `states` names the
        states that a slot is in, given the names of the faults that affect it; `clients` carry out
        administration, if they can (`Administers`)."""
        self._runtime = runtime
        self._plugins = plugins
        self._select = select
        self._record = record
        self._states = states or (lambda slot, under: ())
        self._clients = clients
        self._origin_ns = runtime.now_ns()
        self._injections: list[Injection] = []
        self._asked: list[Asked] = []
        self._skipped: list[Skipped] = []
        self._met: Mapping[str, Mapping[str, int]] = {}
        self._active: list[Active] = []
        self._events: list[Event] = []
        """The events by which the coverage is counted."""

    def __getattr__(self, name: str) -> Callable[..., Active]:
        """The fault of that name; raises UsageError, with the nearest name, if there is none."""
        # Python itself asks for such names, for example when it copies an object: no fault has one.
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._inject_nodes, name)

    def __dir__(self) -> Sequence[str]:
        return sorted({*object.__dir__(self), *self._plugins.faults})

    @property
    def injected(self) -> Sequence[Active]:
        """Every fault so far, in order."""
        return tuple(self._active)

    @property
    def asked(self) -> int:
        """How often an administrator was asked for something so far."""
        return len(self._asked)

    def inject(self, fault: Fault) -> Active:
        """Injects a fault; a fault that ends by itself is healed when this returns.

        It is in the history and in schedule.json before its first effect: a run that dies of it
        shows it, and a replay repeats it. Raises UsageError if its target does not exist; then
        nothing was injected, and the schedule is as before.
        """
        active = self.begin(fault)
        if (lasts_ms := lasting_ms(fault)) is not None:
            # The time counts from the end of the measurement, so that a fault acts for at least as
            # long as it says.
            let_pass_until(self._runtime, self._runtime.now_ns() + lasts_ms * MS)
            active.heal()
        return active

    def begin(self, fault: Fault) -> Active:
        """As `inject`, but the caller heals a fault that ends by itself, too: after
        `lasting_ms`."""
        # 1. What is to be known of the time before: the fault itself changes the states of its
        # victims, and its effects are those that are written down from here on.
        number = len(self._injections)
        fault_id = f"{fault.name}-{number + 1}"
        began_ns, done = self._runtime.now_ns(), len(self._runtime.effects)
        if isinstance(self._runtime, Limited) and (lacks := self._runtime.lacks):
            factory = self._plugins.faults.get(fault.name)
            if factory is not None and (why := why_not(factory, lacks)):
                raise UsageError(f"the fault '{fault.name}' does not exist here: {why}")
        layout = self._runtime.layout
        before = {slot.name: self.states_of(slot) for slot in layout.nodes(spares=True)}
        arguments = msgspec.json.encode(dict(fault.arguments()), order="sorted").decode()
        # 2. The intention, in the history and in the schedule. It is written before the fault acts:
        # a second process that ends while it starts may end the run.
        self._runtime.record(
            FaultIntended(fault_id=fault_id, fault=fault.name, arguments=arguments)
        )
        planned = Injection(
            at_ms=self._ms(began_ns),
            fault=fault.name,
            arguments=fault.arguments(),
            fault_id=fault_id,
            receipt=False,
        )
        self._injections.append(planned)
        self._write()
        try:
            # 3. The fault acts, and is measured. This may take seconds.
            injected = fault.inject(self._runtime)
        except UsageError:
            # The target does not exist, so nothing was done: a replay must not try it. The
            # intention stays in the history, where an event cannot be taken back.
            self._injections.pop()
            self._write()
            raise
        receipt = injected.receipt
        # 4. The outcome. Who the victims are is known only now: a fault may name a selector, or a
        # role.
        victims = [
            slot.name
            for slot in coverage.victims(
                injected.targets, injected.directions, self._runtime.view, self._runtime.layout
            )
        ]
        self._note(
            FaultInjected(
                fault_id=fault_id,
                fault=fault.name,
                targets=injected.targets,
                receipt=receipt.true,
                evidence=receipt.evidence,
                # The event is written after the measurement. Rules and explanations count from this
                # time instead: what came of the fault may have been recorded in between.
                began_at_ns=began_ns,
                arguments=arguments,
                directions=tuple(sorted(map(TO.join, injected.directions))),
                states=_written(before, victims),
                effects=self._runtime.effects.since(done),
            )
        )
        self._injections[number] = replace(
            planned,
            targets=injected.targets,
            receipt=receipt.true,
            missed=receipt.why_missed,
        )
        self._write()
        active = Active(
            fault_id,
            injected,
            lambda: self._heal(number, injected),
            lambda limit_ms: self._measure(number, injected, limit_ms),
            victims,
            arguments=fault.arguments(),
        )
        self._active.append(active)
        return active

    def inject_named(self, name: str, arguments: Mapping[str, object]) -> Active:
        """Applies a fault by name with plain arguments; raises UsageError as `inject` does."""
        return self.inject(self._plugins.fault(name, **arguments))

    def skip(self, name: str, arguments: Mapping[str, object], why: str) -> None:
        """Records a fault that was drawn and could not be injected."""
        at_ms = self._ms(self._runtime.now_ns())
        self._skipped.append(Skipped(at_ms=at_ms, fault=name, arguments=arguments, why=why))
        self._write()

    def administer(self, operation: str, arguments: Mapping[str, object]) -> None:
        """Has the run's clients ask the cluster for an operation; waits for no answer.

        Raises UsageError if they administer nothing, or not that.
        """
        if not isinstance(self._clients, Administers):
            raise UsageError(f"the clients of this run cannot carry out {operation!r}")
        at_ns = self._runtime.now_ns()
        layout = self._runtime.layout
        # The states are taken before the operation, as those of a fault's victims are.
        targets = tuple(self._clients.concerns(operation, arguments))
        before = {name: self.states_of(layout.slot(name)) for name in targets}
        self._note(
            Administered(
                operation=operation,
                arguments=msgspec.json.encode(dict(arguments), order="sorted").decode(),
                targets=targets,
                states=_written(before, targets),
            )
        )
        self._asked.append(
            Asked(at_ms=self._ms(at_ns), operation=operation, arguments=arguments, targets=targets)
        )
        self._write()
        # Recorded first, then asked: an answer that is lost or refused belongs to an operation that
        # the history has.
        self._clients.administer(operation, arguments)

    def states_of(self, slot: Slot) -> Sequence[str]:
        """The states that a slot is in now; see `coverage.states_of`."""
        return self._states(slot, self.under().get(slot.name, ()))

    def under(self) -> Mapping[str, Collection[str]]:
        """The slots that faults are aimed at which are not healed, with the names of the faults."""
        found: dict[str, list[str]] = {}
        for one in self._active:
            if not one.healed:
                for name in one.victims:
                    # The id of a fault is its name, a dash and a number.
                    found.setdefault(name, []).append(one.fault_id.rpartition("-")[0])
        return found

    def upon(self) -> Mapping[tuple[str, str], Collection[str]]:
        """The directions that faults of links affect which are not healed, with the names of the
        faults."""
        found: dict[tuple[str, str], list[str]] = {}
        for one in self._active:
            for pair in () if one.healed else one.directions:
                found.setdefault(pair, []).append(one.fault_id.rpartition("-")[0])
        return found

    def met(self) -> Mapping[str, Mapping[str, int]]:
        """How often each operation met a victim in each state so far: operation -> state ->
        number."""
        return coverage.counts(coverage.met(self._events))

    def prefer(self, met: Mapping[str, Mapping[str, int]]) -> None:
        """Keeps what the run's schedule knows of earlier runs, as a part of its record."""
        self._met = met

    def heal_all(self) -> Sequence[Receipt]:
        """Heals every active fault, newest first; a fault that cannot be healed does not stop the
        others.

        Raises the first error once all were tried.
        """
        receipts, errors = [], []
        # Newest first, as nested blocks end: a later fault may rest on what an earlier one did.
        for active in reversed(self._active):
            if not active.healed:
                try:
                    receipts.append(active.heal())
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        return receipts

    def follow(self, planned: Schedule) -> None:
        """Injects, heals and asks as planned, with times counted from now; waits until targets are
        known.

        Raises UsageError for a fault, an operation or a target that does not exist. A fault that
        the plan does not heal stays active.
        """
        origin_ns = self._runtime.now_ns()
        active: dict[int, Active] = {}
        # By the time of the plan, not by the last action: an injection that took long is followed
        # at once by what was due meanwhile, and nothing is shifted for good.
        for action in schedule.actions(planned):
            let_pass_until(self._runtime, origin_ns + action.at_ms * MS)
            match action.kind:
                case Kind.ASK:
                    asked = planned.administration[action.number]
                    self.administer(asked.operation, asked.arguments)
                case Kind.HEAL:
                    active[action.number].heal()
                case Kind.INJECT:
                    injection = planned.injections[action.number]
                    fault = self._plugins.fault(injection.fault, **self._resolved(injection))
                    active[action.number] = self.inject(fault)

    def _resolved(self, injection: Injection) -> Mapping[str, object]:
        """The injection's arguments. Waits until its selectors have targets, which may not exist
        yet."""

        def known(view: View) -> bool:
            return schedule.resolve(injection.arguments, view, self._select) is not None

        # `@leader` has no target before there is a leader.
        limit_ns = self._runtime.now_ns() + _SELECT_LIMIT_MS * MS
        self._runtime.advance(Condition(f"the targets of {injection.fault}", known), limit_ns)
        found = schedule.resolve(injection.arguments, self._runtime.view, self._select)
        return found or injection.arguments

    def _inject_nodes(self, name: str, /, *args: object, **arguments: object) -> Active:
        plain = {key: _plain(value) for key, value in arguments.items()}
        return self.inject(self._plugins.fault(name, *map(_plain, args), **plain))

    def _measure(self, index: int, injected: Injected, limit_ms: int) -> Receipt:
        """Records the receipt of a fault that had none, as soon as it has one."""
        if injected.measure is None:
            return injected.receipt
        deadline_ns = self._runtime.now_ns() + limit_ms * MS
        # Asked at least once, also without a limit; time passes between two measurements.
        while not (receipt := injected.measure()).true:
            if self._runtime.now_ns() >= deadline_ns:
                return receipt
            let_pass_until(self._runtime, self._runtime.now_ns() + _MEASURED_EVERY_MS * MS)
        recorded = self._injections[index]
        self._note(FaultTookEffect(fault_id=recorded.fault_id, evidence=receipt.evidence))
        self._injections[index] = replace(recorded, receipt=True, missed="")
        self._write()
        return receipt

    def _heal(self, index: int, injected: Injected) -> Receipt:
        began_ns = self._runtime.now_ns()
        receipt = injected.heal()
        recorded = self._injections[index]
        self._runtime.record(
            FaultHealed(
                fault_id=recorded.fault_id,
                receipt=receipt.true,
                evidence=receipt.evidence,
                began_at_ns=began_ns,
            )
        )
        self._injections[index] = replace(recorded, for_ms=self._ms(began_ns) - recorded.at_ms)
        self._write()
        return receipt

    def _note(self, body: FaultInjected | FaultTookEffect | Administered) -> None:
        self._events.append(self._runtime.record(body))

    def _write(self) -> None:
        recorded = Schedule(
            injections=tuple(self._injections),
            administration=tuple(self._asked),
            met=self._met,
            skipped=tuple(self._skipped),
        )
        schedule.write(self._record, recorded)

    def _ms(self, at_ns: int) -> int:
        return (at_ns - self._origin_ns) // MS


_SELECT_LIMIT_MS = 30_000
_MEASURED_EVERY_MS = 20


def _written(before: Mapping[str, Sequence[str]], victims: Sequence[str]) -> tuple[str, ...]:
    """The states of the victims, as events have them."""
    return tuple(f"{name}{WAS}{state}" for name in victims for state in before.get(name, ()))


def _plain(value: object) -> object:
    """The value with nodes replaced by their names."""
    if isinstance(value, InSlot):
        return value.slot.name
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
