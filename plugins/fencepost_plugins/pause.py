"""A stopped process: SIGSTOP, and SIGCONT to heal.

Its sockets stay open and the kernel goes on accepting bytes for it, as during a long garbage
collection or in a stopped virtual machine. Its monotonic clock goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from fencepost import FaultFactory, Handle, Injected, Receipt, Runtime, Signal, hookimpl, needs
from fencepost_plugins.targets import find_slot


@final
@dataclass(frozen=True, slots=True)
class Pause:
    """Stops a node's process until the fault heals."""

    node: str
    name: str = "pause"

    def inject(self, runtime: Runtime) -> Injected:
        """The receipt is the process's state in the kernel; a dead node has no receipt."""
        slot = find_slot(runtime.layout, self.node)
        victim = runtime.living(slot)
        if victim is None:
            missed = Receipt(False, f"no process runs in {self.node}")
            return Injected((self.node,), missed, lambda: Receipt(True, "nothing was stopped"))

        def heal() -> Receipt:
            if runtime.living(slot) != victim:
                return Receipt(True, f"{victim.name} has ended meanwhile")
            return runtime.signal(victim, Signal.CONT)

        return Injected((victim.name,), runtime.signal(victim, Signal.STOP), heal)

    def arguments(self) -> Mapping[str, object]:
        return {"node": self.node}


@needs(Handle.PROCESS)
def pause(node: str) -> Pause:
    """SIGSTOP; SIGCONT when the fault heals."""
    return Pause(node)


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    return {"pause": pause}
