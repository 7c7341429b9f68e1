"""A known finding of a system that does not say its version; `test_known_finding.py` checks it."""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen


def behind_a_cut(scene: Scene) -> bool:
    """A fault cut the server off that had acknowledged the write, so that it replicated nothing."""
    server = scene.name("server")
    faults = scene.faults("cut", "isolate", "partition", within_ms=30_000)
    return any(server in fault.targets for fault in faults)


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
