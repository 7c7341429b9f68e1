"""What was struck in a run: each fault recorded with its receipt, and healed whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, final

from msgspec.structs import replace

from fencepost.events import FaultHealed, FaultStruck
from fencepost.model.clock import MS
from fencepost.model.cluster import InSlot
from fencepost.model.faults import Fault, Passing, Struck
from fencepost.model.runtime import Condition, Receipt, Runtime, let_pass_until
from fencepost.model.view import View
from fencepost.plugins.manager import Plugins
from fencepost.runs import schedule
from fencepost.runs.schedule import Schedule, Select, Strike


@final
class Active:
    """A fault that was struck. Used in `with`, it heals at the end of the block."""

    def __init__(self, fault_id: str, struck: Struck, heal: Callable[[], Receipt]) -> None:
        self.fault_id = fault_id
        self.targets = struck.targets
        self.receipt = struck.receipt
        self._heal = heal
        self._healed: Receipt | None = None

    @property
    def healed(self) -> bool:
        return self._healed is not None

    def heal(self) -> Receipt:
        """Undoes the fault; a second call changes nothing and returns the first one's receipt."""
        if self._healed is None:
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
    """Strikes faults by name: `faults.kill(node)`, for every fault that a loaded plugin offers.

    Nodes may be given as `Node`s, as names, or as sequences of either. Every strike is an event and
    an entry in the run's schedule.json.
    """

    def __init__(self, runtime: Runtime, plugins: Plugins, record: Path, select: Select) -> None:
        """`record` is the schedule.json to write; its times count from now."""
        self._runtime = runtime
        self._plugins = plugins
        self._select = select
        self._record = record
        self._origin_ns = runtime.now_ns()
        self._strikes: list[Strike] = []
        self._active: list[Active] = []

    def __getattr__(self, name: str) -> Callable[..., Active]:
        """The fault of that name; raises UsageError, with the nearest right name, for no fault."""
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._strike_nodes, name)

    def __dir__(self) -> Sequence[str]:
        return sorted({*object.__dir__(self), *self._plugins.faults})

    @property
    def struck(self) -> Sequence[Active]:
        """Every fault so far, in order."""
        return tuple(self._active)

    def strike(self, fault: Fault) -> Active:
        """Applies a fault; one that passes by itself is healed when this returns.

        Raises UsageError when its target does not exist.
        """
        number = len(self._active) + 1
        fault_id = f"{fault.name}-{number}"
        began_ns = self._runtime.now_ns()
        struck = fault.strike(self._runtime)
        receipt = struck.receipt
        self._runtime.record(
            FaultStruck(
                fault_id, fault.name, struck.targets, receipt.true, receipt.evidence, began_ns
            )
        )
        self._strikes.append(
            Strike(
                at_ms=self._ms(began_ns),
                fault=fault.name,
                arguments=fault.arguments(),
                fault_id=fault_id,
                targets=struck.targets,
                receipt=receipt.true,
            )
        )
        self._write()
        active = Active(fault_id, struck, lambda: self._heal(number - 1, struck))
        self._active.append(active)
        if isinstance(fault, Passing) and fault.lasts_ms is not None:
            let_pass_until(self._runtime, self._runtime.now_ns() + fault.lasts_ms * MS)
            active.heal()
        return active

    def strike_named(self, name: str, arguments: Mapping[str, object]) -> Active:
        """Applies a fault by name with plain arguments; raises UsageError as `strike` does."""
        return self.strike(self._plugins.fault(name, **arguments))

    def heal_all(self) -> Sequence[Receipt]:
        """Heals what is not healed, newest first; one that cannot be healed stops no other.

        Raises the first error once all were tried.
        """
        receipts, errors = [], []
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
        """Strikes and heals as planned, times counted from now; waits for targets to be known.

        Raises UsageError for a fault or target that does not exist. What it did not heal lasts.
        """
        origin_ns = self._runtime.now_ns()
        active: dict[int, Active] = {}
        for action in schedule.actions(planned):
            let_pass_until(self._runtime, origin_ns + action.at_ms * MS)
            if action.heals:
                active[action.number].heal()
            else:
                strike = planned.strikes[action.number]
                fault = self._plugins.fault(strike.fault, **self._resolved(strike))
                active[action.number] = self.strike(fault)

    def _resolved(self, strike: Strike) -> Mapping[str, object]:
        """The strike's arguments, once what they select is known: a leader may be missing now."""

        def known(view: View) -> bool:
            return schedule.resolve(strike.arguments, view, self._select) is not None

        limit_ns = self._runtime.now_ns() + _SELECT_LIMIT_MS * MS
        self._runtime.advance(Condition(f"the targets of {strike.fault}", known), limit_ns)
        found = schedule.resolve(strike.arguments, self._runtime.view, self._select)
        return found or strike.arguments

    def _strike_nodes(self, name: str, *args: object, **arguments: object) -> Active:
        plain = {key: _plain(value) for key, value in arguments.items()}
        return self.strike(self._plugins.fault(name, *map(_plain, args), **plain))

    def _heal(self, index: int, struck: Struck) -> Receipt:
        began_ns = self._runtime.now_ns()
        receipt = struck.heal()
        recorded = self._strikes[index]
        self._runtime.record(
            FaultHealed(recorded.fault_id, receipt.true, receipt.evidence, began_ns)
        )
        self._strikes[index] = replace(recorded, for_ms=self._ms(began_ns) - recorded.at_ms)
        self._write()
        return receipt

    def _write(self) -> None:
        schedule.write(self._record, Schedule(strikes=tuple(self._strikes)))

    def _ms(self, at_ns: int) -> int:
        return (at_ns - self._origin_ns) // MS


_SELECT_LIMIT_MS = 30_000


def _plain(value: object) -> object:
    """Nodes as their names; everything else as it is."""
    if isinstance(value, InSlot):
        return value.slot.name
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
