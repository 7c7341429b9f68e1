"""A known finding, and histories of one partition with its cause or without."""

from __future__ import annotations

from msgspec import Struct

from fencepost import (
    Administered,
    Cause,
    Consequence,
    Event,
    Evidence,
    FaultHealed,
    FaultInjected,
    KnownFinding,
    Mark,
    Seen,
    Trigger,
)
from fencepost.judging.attribution import attributed
from fencepost.judging.verdicts import Broken, Judgement, Outcome, Verdict
from fencepost.model.clock import SECOND
from fencepost_kafka import LogTruncated

VICTIM = "broker-1#1"
KNOWN = KnownFinding(
    id="serves-late",
    system="some/thing",
    clauses=("QC-17",),
    message=r"it lost (?P<low>\d+) to (?P<high>\d+)",
    trigger=Trigger(fault="pause", arguments={"hard": True}, within_ms=2_000),
    marks=(Mark(kind="replica.log_truncated", sentence=r".*from offset 5 .*", there=True),),
    then=(
        Consequence(clause="RP-06", message=r"offset (?P<low>\d+) is gone"),
        Consequence(clause="RP-07", message=r"offset (?P<low>\d+) was good", earlier=True),
    ),
    wake="partition",
    says="It serves for a moment after its lease.",
    seen=(
        Seen(version="1.0", runs=3, of=10),
        Seen(version="1.1", runs=1, of=1),
        Seen(version="1.2", runs=0, of=9),
    ),
    schedule="schedule.json",
    history="history.ndjson",
)


class Scene:
    """A history of one partition, and the violations in it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.verdicts: dict[str, Verdict] = {}

    def add(self, at_s: float, process: str, body: Struct) -> Cause:
        event = Event("run", process, len(self.events), int(at_s * SECOND), body)
        self.events.append(event)
        return event.ref

    def inject(
        self,
        at_s: float,
        *,
        fault: str = "pause",
        target: str = VICTIM,
        arguments: str = '{"hard":true,"node":"broker-1"}',
        noted_s: float = 0,
        receipt: bool = True,
    ) -> None:
        injected = FaultInjected(
            fault_id="fault-1",
            fault=fault,
            targets=(target,),
            receipt=receipt,
            evidence="",
            began_at_ns=int(at_s * SECOND),
            arguments=arguments,
        )
        self.add(noted_s or at_s, "harness", injected)

    def heal(self, at_s: float) -> None:
        self.add(at_s, "harness", FaultHealed(fault_id="fault-1", receipt=True, evidence=""))

    def truncate(
        self, at_s: float, process: str = VICTIM, to: int = 5, partition: int = 0
    ) -> Cause:
        body = LogTruncated(
            topic="t",
            partition=partition,
            to_offset=to,
            from_log_end=9,
            high_watermark=0,
            leader_epoch=1,
            reason="leader_epoch",
        )
        return self.add(at_s, process, body)

    def ask(self, at_s: float, arguments: str, operation: str = "alter_settings") -> None:
        body = Administered(operation=operation, arguments=arguments, targets=("broker-1",))
        self.add(at_s, "harness", body)

    def violate(
        self, at: Cause, message: str, clause: str = "QC-17", because: tuple[Cause, ...] = ()
    ) -> None:
        before = self.verdicts.get(clause)
        known = before.violations if before is not None else ()
        one = Broken(at=at, evidence=Evidence.SELF, message=message, because=because)
        broken = (*known, one)
        self.verdicts[clause] = Verdict(
            Outcome.VIOLATED, 1, Evidence.SELF, "says", violated=len(broken), violations=broken
        )

    def broken(self, finding: KnownFinding = KNOWN) -> tuple[str, ...]:
        return tuple(attributed(Judgement(self.verdicts), [finding], self.events).broken)


def caused() -> Scene:
    """The finding with its whole cause: injected at 10 s, healed at 20 s."""
    scene = Scene()
    scene.inject(10)
    scene.truncate(12)
    scene.heal(20)
    return scene
