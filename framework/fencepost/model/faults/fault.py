"""A fault: data, one effect that injects it, and its own healing.

A plugin's fault is a frozen value with a `name`, `arguments`, and `inject`, which applies it
through the `Runtime` and returns the `Injected` fault: its targets, its receipt, and how to heal
it. The harness records both and heals every active fault at the end, newest first, even after an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Protocol, runtime_checkable

from fencepost.model.runtime import Receipt, Runtime
from fencepost.model.system.topology import Cut


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that was injected: its actual targets (slot or process names), receipt, and healing.

    `heal` may be called twice, and after its target has died or restarted.

    `measure` is for a fault that waits for its object, such as a certain message: it returns the
    receipt at the time of the call. Until that receipt is true, the fault has no receipt.

    `directions` are, for a fault of links, the (source, target) pairs of slots between which it
    keeps data from arriving as it should. A fault without any acts upon its targets themselves.
    """

    targets: tuple[str, ...]
    receipt: Receipt
    heal: Callable[[], Receipt]
    measure: Callable[[], Receipt] | None = None
    directions: Cut = frozenset()


class Fault(Protocol):
    """One way to break a cluster, as data."""

    @property
    def name(self) -> str:
        """The name by which it is injected."""
        ...

    def inject(self, runtime: Runtime) -> Injected:
        """Injects the fault; raises UsageError if its target does not exist."""
        ...

    def arguments(self) -> Mapping[str, object]:
        """Plain data from which the plugin's factory makes this fault again, for replay."""
        ...


@runtime_checkable
class Passing(Protocol):
    """A fault that ends by itself: the harness heals it `lasts_ms` after it was injected.

    None: it lasts until it is healed, as a fault without this attribute does.
    """

    @property
    def lasts_ms(self) -> int | None:
        """The milliseconds from its injection to its heal."""
        ...


FaultFactory = Callable[..., Fault]
"""Makes a fault from keyword arguments of plain data; the hook `fencepost_faults` names them."""


def arguments_of(factory: FaultFactory) -> str:
    """The arguments that a fault takes, as a caller writes them: `node, hard=False`; empty if it
    takes none, or does not say them."""
    try:
        given = signature(factory).parameters.values()
    except ValueError:  # some callables written in C
        return ""
    return ", ".join(str(one.replace(annotation=Parameter.empty)) for one in given)
