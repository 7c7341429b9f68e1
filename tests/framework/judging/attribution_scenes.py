"""A known finding, and histories of one partition with its cause or without."""

from __future__ import annotations

from msgspec import Struct

from fencepost import (
    Administered,
    Cause,
    Event,
    Evidence,
    Facts,
    FaultHealed,
    FaultInjected,
    Follows,
    KnownFinding,
    Numbers,
    Scene,
    Seen,
    Wake,
)
from fencepost.judging.attribution import attributed
from fencepost.judging.verdicts import Broken, Judgement, Outcome, Verdict
from fencepost.model.clock import SECOND
from fencepost_kafka import LogTruncated, partition_of

VICTIM = "broker-1#1"
LOSS: Facts = {"low": 3, "high": 8}


def _caused(scene: Scene) -> bool:
    """A hard pause of the violation's process, which then dropped everything from offset 5 on."""
    return "low" in scene.facts and any(
        fault.struck(scene.process)
        and fault.arguments.get("hard") is True
        and fault.struck(event.process)
        and str(partition_of(dropped)) == "t-0"
        and dropped.to_offset == 5
        for fault in scene.faults("pause", within_ms=2_000)
        for event, dropped in scene.traces(LogTruncated, since=fault)
    )


def _lost(facts: Facts) -> Numbers:
    low, high = facts.get("low"), facts.get("high")
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _offset(facts: Facts) -> Numbers:
    offset = facts["offset"]
    assert isinstance(offset, int)
    return offset, offset


WAKE = Wake(
    scope="partition",
    numbers=_lost,
    follows=(Follows("RP-06", _offset), Follows("RP-07", _offset, earlier=True)),
)
KNOWN = KnownFinding(
    id="serves-late",
    system="some/thing",
    clauses=("QC-17",),
    caused=_caused,
    reads=(LogTruncated,),
    wake=WAKE,
    says="It serves for a moment after its lease.",
    seen=(Seen("1.0", 3, 10), Seen("1.1", 1, 1), Seen("1.2", 0, 9)),
    schedule="schedule.json",
    history="history.ndjson",
)


class Story:
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
        self,
        at: Cause,
        facts: Facts = LOSS,
        clause: str = "QC-17",
        because: tuple[Cause, ...] = (),
    ) -> None:
        before = self.verdicts.get(clause)
        known = before.violations if before is not None else ()
        one = Broken(
            at=at, evidence=Evidence.SELF, message="it broke", because=because, facts=facts
        )
        broken = (*known, one)
        self.verdicts[clause] = Verdict(
            Outcome.VIOLATED, 1, Evidence.SELF, "says", violated=len(broken), violations=broken
        )

    def broken(self, finding: KnownFinding = KNOWN) -> tuple[str, ...]:
        return tuple(attributed(Judgement(self.verdicts), [finding], self.events).broken)


def caused() -> Story:
    """The finding with its whole cause: injected at 10 s, healed at 20 s."""
    scene = Story()
    scene.inject(10)
    scene.truncate(12)
    scene.heal(20)
    return scene
