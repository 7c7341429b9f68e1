"""A known finding of a system that does not say its version; `test_known_finding.py` checks it."""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen


def behind_a_cut(scene: Scene) -> bool:
    """A fault isolated the server that had acknowledged the write, so that it replicated nothing.
    The targets of such a fault are both ends of each link: its argument says whom it isolated."""
    faults = scene.faults("isolate", within_ms=30_000)
    return any(fault.arguments.get("node") == scene.name("server") for fault in faults)


FINDING = KnownFinding(
    id="acknowledged-behind-a-cut",
    system="acme/store",
    clauses=("STORE-1",),
    caused=behind_a_cut,
    says="A server that is cut off acknowledges writes that the next primary never gets.",
    seen=(Seen(version="", runs=7, of=22),),
    schedule="findings/acknowledged-behind-a-cut/schedule.json",
    history="",
)
