"""Ends a node's process, and starts its next one.

SIGKILL ends only the process: data that it wrote is in the kernel and reaches the disk. A power
failure loses data that was not synced; only the simulated runtime, which has disks of its own, can
do that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from fencepost import (
    ORDERLY,
    FaultFactory,
    Handle,
    Injected,
    Powered,
    Process,
    Receipt,
    Runtime,
    Signal,
    Slot,
    UsageError,
    hookimpl,
    needs,
)
from fencepost_plugins.targets import KILLED_WITHIN_MS, end, ends, ensure_living, find_slot, named

END_BOUND_MS = {Signal.KILL: KILLED_WITHIN_MS, Signal.TERM: 30_000, Signal.INT: 30_000}
"""How long the fault waits for the end of the process. After SIGKILL, one that has not ended by
then was missed. After SIGTERM it was not: how long it takes to end is the system's own affair, and
a clause (AVAIL-stopped) says whether that is too long."""


@final
@dataclass(frozen=True, slots=True)
class Bounce:
    """Ends a node's process by `signal`; healing starts the next one, after `lasts_ms` if given.

    The caller chooses whether that is within the node's lease or after it.
    """

    name: str
    node: str
    signal: Signal
    lasts_ms: int | None = None

    def inject(self, runtime: Runtime) -> Injected:
        """Returns once the process has ended, or the bound has passed. The receipt of SIGKILL is
        the end; that of SIGTERM and SIGINT is that a running process got the signal. Without a
        running process, and for one that is stopped, there is none."""
        slot = find_slot(runtime.layout, self.node)
        victim = runtime.living(slot)

        def heal() -> Receipt:
            return ensure_living(runtime, slot, asked_to_end=victim)

        if victim is None:
            return Injected((self.node,), Receipt(False, f"no process runs in {self.node}"), heal)
        return Injected((victim.name,), self._end(runtime, victim), heal)

    def _end(self, runtime: Runtime, victim: Process) -> Receipt:
        limit_ms = END_BOUND_MS[self.signal]
        got = runtime.signal(victim, self.signal)
        if self.signal in ORDERLY and not got.true:
            return got
        if ends(runtime, victim, limit_ms):
            return Receipt(True, f"{named(victim)} ended by {self.signal}")
        late = f"{got.evidence}; it had not ended {limit_ms} ms later"
        return Receipt(self.signal in ORDERLY, late)

    def arguments(self) -> Mapping[str, object]:
        if self.name == "kill":
            return {"node": self.node}
        if self.name == "terminate":
            return {"node": self.node, "signal": str(self.signal)}
        return {"node": self.node, "after_ms": self.lasts_ms, "signal": str(self.signal)}


@needs(Handle.PROCESS, Handle.START)
def kill(node: str) -> Bounce:
    """SIGKILL; the node's next process starts when the fault heals."""
    return Bounce("kill", node, Signal.KILL)


@needs(Handle.PROCESS, Handle.START)
def terminate(node: str, signal: str = Signal.TERM) -> Bounce:
    """SIGTERM (or SIGINT), waits for the orderly end; the next process starts when it heals."""
    if signal not in (Signal.TERM, Signal.INT):
        raise UsageError("terminate takes SIGTERM or SIGINT")
    return Bounce("terminate", node, Signal(signal))


@needs(Handle.PROCESS, Handle.START)
def bounce(node: str, after_ms: int, signal: str = Signal.KILL) -> Bounce:
    """SIGKILL (or SIGTERM); the next process starts `after_ms` after the end of the first."""
    if signal not in (Signal.KILL, Signal.TERM) or after_ms < 0:
        raise UsageError("bounce takes SIGKILL or SIGTERM, and an after_ms of at least 0")
    return Bounce("bounce", node, Signal(signal), after_ms)


@final
@dataclass(frozen=True, slots=True)
class PowerLoss:
    """Cuts the power of a node's machine; healing starts the node's next process."""

    node: str
    name: str = "lose_power"

    def inject(self, runtime: Runtime) -> Injected:
        """Without a running process there is no receipt; raises UsageError on a runtime with real
        disks."""
        if not isinstance(runtime, Powered):
            raise UsageError("only the simulated runtime can cut the power of a machine")
        slot = find_slot(runtime.layout, self.node)

        def heal() -> Receipt:
            return ensure_living(runtime, slot)

        victim = runtime.living(slot)
        if victim is None:
            return Injected((self.node,), Receipt(False, f"no process runs in {self.node}"), heal)
        return Injected((victim.name,), runtime.lose_power(victim), heal)

    def arguments(self) -> Mapping[str, object]:
        return {"node": self.node}


@needs(Handle.POWER)
def lose_power(node: str) -> PowerLoss:
    """The node's machine loses power, and its disk loses unsynced data."""
    return PowerLoss(node)


@final
@dataclass(frozen=True, slots=True)
class DiskLoss:
    """Ends a node's process and empties its disk; healing starts the node's next process.

    It imitates a machine that was replaced, or a volume that was lost: the node keeps its name, its
    id and its addresses, and its next process knows nothing of what the former one stored.
    """

    node: str
    name: str = "wipe_disk"

    def inject(self, runtime: Runtime) -> Injected:
        """Returns once the disk is empty; without a running process there is no receipt, and the
        disk keeps its data."""

        def empty(slot: Slot) -> str:
            runtime.copy_disk(None, slot)
            return "its disk was emptied"

        return _at_rest(runtime, self.node, empty)

    def arguments(self) -> Mapping[str, object]:
        return {"node": self.node}


@needs(Handle.DISK)
def wipe_disk(node: str) -> DiskLoss:
    """SIGKILL, and the node's disk is emptied; its next process starts when the fault heals."""
    return DiskLoss(node)


@final
@dataclass(frozen=True, slots=True)
class DiskDamage:
    """Ends a node's process and damages its disk; healing starts the node's next process.

    It imitates writes that were torn when a machine lost its power: a file is as long as it was
    written, and ends in zeros. Data that was synced is lost, too, as by a disk that did not sync. A
    node that checks what it reads drops its messages from there on.
    """

    node: str
    files: str
    last_bytes: int
    name: str = "damage_disk"

    def inject(self, runtime: Runtime) -> Injected:
        """Returns once the disk is damaged. Without a running process there is no receipt, and the
        disk is as it was. There is no receipt either if no file changes."""

        def damage(slot: Slot) -> str:
            damaged = runtime.damage_disk(slot, self.files, self.last_bytes)
            if not damaged:
                return ""
            first = ", ".join(damaged[:_NAMED_FILES])
            more = f" and {len(damaged) - _NAMED_FILES} more" if len(damaged) > _NAMED_FILES else ""
            return f"the last {self.last_bytes} bytes of {first}{more} are zeros"

        return _at_rest(runtime, self.node, damage, f"no file of its disk changed ({self.files})")

    def arguments(self) -> Mapping[str, object]:
        return {"node": self.node, "files": self.files, "last_bytes": self.last_bytes}


_NAMED_FILES = 3
"""How many damaged files a receipt names."""


@needs(Handle.DISK)
def damage_disk(node: str, files: str, last_bytes: int) -> DiskDamage:
    """SIGKILL, and the last bytes of some files of the node's disk become zeros: of each folder,
    the last file by name that matches `files`, such as `orders-*/*.log`. The next process starts
    when the fault heals."""
    if last_bytes < 1 or not files:
        raise UsageError("damage_disk takes a pattern of files, and last_bytes of at least 1")
    return DiskDamage(node, files, last_bytes)


def _at_rest(
    runtime: Runtime, node: str, change: Callable[[Slot], str], missed: str = ""
) -> Injected:
    """Ends the node's process, and changes its disk. `change` returns a description, empty if no
    file was changed; `missed` is the reason then. If it raises, the next process is started."""
    slot = find_slot(runtime.layout, node)

    def heal() -> Receipt:
        return ensure_living(runtime, slot)

    victim = runtime.living(slot)
    if victim is None:
        return Injected((node,), Receipt(False, f"no process runs in {node}"), heal)
    limit_ms = END_BOUND_MS[Signal.KILL]
    if not end(runtime, victim, Signal.KILL, limit_ms):
        late = Receipt(False, f"{named(victim)} did not end {limit_ms} ms after SIGKILL")
        return Injected((victim.name,), late, heal)
    try:
        done = change(slot)
    except Exception:
        heal()
        raise
    evidence = f"{named(victim)} ended by SIGKILL, and {done or missed}"
    return Injected((victim.name,), Receipt(bool(done), evidence), heal)


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    return {
        "kill": kill,
        "terminate": terminate,
        "bounce": bounce,
        "lose_power": lose_power,
        "wipe_disk": wipe_disk,
        "damage_disk": damage_disk,
    }
