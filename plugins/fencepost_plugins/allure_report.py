"""The result of a test's run, as attachments of its Allure result.

Allure shows HTML without its scripts, so the attachments need none. Timelines are made only for
runs with a violation, since each takes a report of its run. A violation is an AssertionError, which
Allure reports as failed; an inconclusive run is reported as broken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from fencepost import FencepostError, hookimpl


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


@hookimpl
def fencepost_run_judged(run_folder: Path, make_report: Callable[[], Path]) -> None:
    """Attaches verdicts, and the explanations of violations, if Allure is in use in this
    process."""
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
