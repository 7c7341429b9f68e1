"""The result of a test's run in its Allure result: labels, a step for each fault, attachments.

The results folder gets `environment.properties` and `categories.json`, too. A seed is a label and
no parameter: Allure follows a test over several reports by its name and its parameters.

Allure shows HTML without its scripts, so the attachments need none. Timelines are made only for
runs with a violation, since each takes a report of its run. A violation is an AssertionError, which
Allure reports as failed; an inconclusive run is reported as broken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from fencepost import (
    Codec,
    Event,
    FaultHealed,
    FaultInjected,
    FaultTookEffect,
    FencepostError,
    TestStarted,
    began_ns,
    hookimpl,
)

CATEGORIES = (
    {
        "name": "A promise is violated",
        "matchedStatuses": ["failed"],
        "messageRegex": r"(?s).*\bViolation: .*",
    },
    {
        "name": "The evidence allows no verdict",
        "matchedStatuses": ["broken"],
        "messageRegex": r"(?s).*\bInconclusive: .*",
    },
    {
        "name": "The environment failed",
        "matchedStatuses": ["broken"],
        "messageRegex": r"(?s).*\bEnvironmentFailed: .*",
    },
)
"""categories.json: by the exceptions that end a test."""
_SHOWN = (b'"type":"test.started"', b'"type":"fault.')
"""What the lines of a history contain that hold the events shown here."""


class Found(Struct, frozen=True):
    """One violation, as verdicts.json has it."""

    message: str
    explanation: tuple[str, ...] = ()


class WrittenVerdict(Struct, frozen=True):
    """One clause's verdict, as verdicts.json has it; its other fields are not shown."""

    verdict: str
    exercised: int
    evidence: Literal["client", "peer", "self"] | None
    sentence: str
    reason: str = ""
    violations: tuple[Found, ...] = ()
    known: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The verdict in one word; a violation that is a known finding is `known`."""
        return "known" if self.known else self.verdict

    @property
    def why(self) -> str:
        """The ids of its known findings, or the reason for the verdict."""
        return ", ".join(self.known) or self.reason


class WrittenRun(Struct, frozen=True):
    """A run, as run.json has it; its other fields are not shown."""

    system: str
    runtime: str
    seed: int
    versions: Mapping[str, str] = {}

    @property
    def version(self) -> str:
        """The version of the system, or Fencepost's for a system that comes with it."""
        family = self.system.partition("@")[0]
        return self.versions.get(family, self.versions.get("fencepost", ""))


class Step(Struct, frozen=True):
    """A fault, and the sentences of its receipts."""

    title: str
    receipts: tuple[str, ...]


@hookimpl
def fencepost_run_judged(run_folder: Path, make_report: Callable[[], Path]) -> None:
    """Adds labels, steps and attachments to the result of the present test, if Allure is in use in
    this process."""
    if "allure_commons" not in sys.modules:
        return
    # Imported only now: without Allure it is not needed.
    import allure  # noqa: PLC0415
    import allure_commons  # noqa: PLC0415

    # Allure's plugin is always loaded if installed; it writes only if a listener is set.
    if not allure_commons.plugin_manager.hook.report_attached_data.get_hookimpls():
        return
    verdicts = msgspec.json.decode(
        (run_folder / "verdicts.json").read_bytes(), type=dict[str, WrittenVerdict]
    )
    run = msgspec.json.decode((run_folder / "run.json").read_bytes(), type=WrittenRun)
    shown = tuple(events(run_folder / "history.ndjson"))
    for name, values in labels(run, shown, verdicts).items():
        allure.dynamic.label(name, *values)  # type: ignore[no-untyped-call]
    for step in steps(shown):
        with allure.step(step.title):
            for receipt in step.receipts:
                with allure.step(receipt):
                    pass
    write = allure_commons.plugin_manager.hook.report_attached_data
    write(body=environment(run), file_name="environment.properties")
    write(body=msgspec.json.encode(CATEGORIES), file_name="categories.json")
    kinds = allure.attachment_type
    allure.attach(table(verdicts), "verdicts", kinds.HTML)
    allure.attach(str(run_folder), "run folder", kinds.TEXT)
    lines = explanations(verdicts)
    if lines:
        allure.attach("\n".join(lines), "explanation", kinds.TEXT)
        try:
            folder = make_report().parent
        except FencepostError as missing:
            allure.attach(str(missing), "no timeline", kinds.TEXT)
            return
        for page in sorted(folder.glob("timeline*.html")):
            allure.attach(page.read_text(), "timeline", kinds.HTML)


def events(history: Path) -> Iterator[Event]:
    """The events of a merged history that are shown: of faults, and the test's beginning."""
    codec = Codec()
    with history.open("rb") as lines:
        for line in lines:
            if any(part in line for part in _SHOWN):
                with suppress(msgspec.DecodeError):  # the history's damage is in the verdicts
                    yield codec.decode(line)


def labels(
    run: WrittenRun, shown: Iterable[Event], verdicts: Mapping[str, WrittenVerdict]
) -> Mapping[str, Sequence[str]]:
    """The labels of a result: its clauses are those that the test is marked with, and those that
    it violated."""
    marked = [clause for e in shown if isinstance(e.body, TestStarted) for clause in e.body.clauses]
    violated = [clause for clause, one in verdicts.items() if one.verdict == "violated"]
    return {
        "clause": tuple(dict.fromkeys([*marked, *violated])),
        "system": (run.system,),
        "version": (run.version,),
        "runtime": (run.runtime,),
        "seed": (str(run.seed),),
    }


def steps(shown: Iterable[Event]) -> Sequence[Step]:
    """A step for each fault: what it was, with the evidence that it took effect and that it
    healed, and when by the clock of the run."""
    titles: dict[str, str] = {}
    receipts: dict[str, list[str]] = {}
    for event in shown:
        match event.body:
            case FaultInjected() as fault:
                at = began_ns(event) / 1e9
                where = ", ".join(fault.targets) or "the cluster"
                titles[fault.fault_id] = f"{fault.fault} of {where} at {at:.3f} s"
                word = "receipt" if fault.receipt else "no receipt"
                receipts[fault.fault_id] = [f"{word}: {fault.evidence}"]
            case FaultTookEffect(fault_id=name, evidence=evidence) if name in titles:
                receipts[name].append(f"receipt at {event.at_ns / 1e9:.3f} s: {evidence}")
            case FaultHealed(fault_id=name) as healed if name in titles:
                word = "healed" if healed.receipt else "healed, without a receipt"
                receipts[name].append(f"{word} at {event.at_ns / 1e9:.3f} s: {healed.evidence}")
    return [Step(title, tuple(receipts[name])) for name, title in titles.items()]


def environment(run: WrittenRun) -> str:
    """environment.properties: the system, the runtime, and the versions of all that took part."""
    values = {"system": run.system, "runtime": run.runtime}
    values |= {f"version.{name}": version for name, version in sorted(run.versions.items())}
    lines = (f"{name}={value}" for name, value in values.items())
    return "".join(f"{' '.join(line.split())}\n" for line in lines)


def table(verdicts: Mapping[str, WrittenVerdict]) -> str:
    """The verdicts as a page of its own, without scripts, the worst first."""
    weight = {"violated": 0, "unknown": 1, "known": 2, "not-exercised": 3, "holds": 4}
    rows = [
        "<tr>"
        + "".join(
            f"<td>{escape(str(cell))}</td>"
            for cell in (
                clause,
                verdict.shown,
                verdict.exercised,
                verdict.evidence or "",
                verdict.sentence,
                verdict.why,
            )
        )
        + "</tr>"
        for clause, verdict in sorted(
            verdicts.items(), key=lambda item: (weight.get(item[1].shown, 5), item[0])
        )
    ]
    heads = ("clause", "verdict", "exercised", "evidence", "promise", "reason")
    head = "".join(f"<th align='left'>{name}</th>" for name in heads)
    return f"<table cellpadding='4'><tr>{head}</tr>{''.join(rows)}</table>"


def explanations(verdicts: Mapping[str, WrittenVerdict]) -> Sequence[str]:
    """For each violated clause: its sentence, the violation, and the events that led to it."""
    lines: list[str] = []
    for clause, verdict in verdicts.items():
        for found in verdict.violations:
            lines += [f"{clause}: {verdict.sentence}", f"  {found.message}"]
            lines += [f"  {line}" for line in found.explanation]
    return lines
