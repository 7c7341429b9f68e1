"""Compares a reading with the rules of its clause, and shrinks a history on which they disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, final

import msgspec
from msgspec import Struct

from fencepost import Codec, RunEnd
from fencepost.judging.folder import Promises
from fencepost.judging.judge import Judge
from fencepost.judging.verdicts import Outcome, Verdict
from second_readings.reading import READINGS, History, Says, said


class Agreement(StrEnum):
    """How a reading and the rules of its clause compare on one history."""

    BOTH_VIOLATED = "both-violated"
    BOTH_SILENT = "both-silent"
    OPEN = "open"
    """One of them is undecided: nothing is compared."""
    EXCUSED = "excused"
    """The reading says violated, and the rules excused something by a fault. A reading knows few
    excuses, so this is counted apart."""
    UNNOTICED = "unnoticed"
    """The reading says violated, and the rules see nothing: a disagreement."""
    ACCUSED = "accused"
    """The rules say violated, and the reading sees nothing: a disagreement."""
    CRASHED = "crashed"
    """A rule raised."""


DISAGREEMENTS = (Agreement.UNNOTICED, Agreement.ACCUSED, Agreement.CRASHED)


def verdict(clause: str, history: History, promises: Promises) -> tuple[Verdict | None, str]:
    """The rules' verdict on one clause, and why one of them crashed (empty: none did)."""
    rules = [rule for rule in promises.rules if rule.clause == clause]
    judge = Judge(rules, promises.clauses, history.plane)
    judge.take(history.events)
    found = judge.end(history.end).verdicts.get(clause)
    return found, next(iter(judge.crashed), "")


def compared(clause: str, history: History, promises: Promises) -> Agreement:
    """How the second reading of a clause and its rules compare."""
    found, crashed = verdict(clause, history, promises)
    says = said(READINGS[clause](history))
    outcome = Outcome.NOT_APPLICABLE if found is None else found.verdict
    if crashed:
        return Agreement.CRASHED
    if Says.UNDECIDED is says or outcome in (Outcome.UNKNOWN, Outcome.NOT_APPLICABLE):
        return Agreement.OPEN
    if says is Says.VIOLATED:
        if outcome is Outcome.VIOLATED:
            return Agreement.BOTH_VIOLATED
        return Agreement.EXCUSED if found is not None and found.excused else Agreement.UNNOTICED
    return Agreement.ACCUSED if outcome is Outcome.VIOLATED else Agreement.BOTH_SILENT


def shrunk(clause: str, history: History, promises: Promises) -> History:
    """A history without any event that the disagreement does not need: halves are left out first,
    then single events."""
    wanted = compared(clause, history, promises)
    events = list(history.events)
    size = max(1, len(events) // 2)
    while True:
        place, left_out = 0, False
        while place < len(events):
            fewer = [*events[:place], *events[place + size :]]
            if compared(clause, History(fewer, history.end, history.plane), promises) is wanted:
                events, left_out = fewer, True
            else:
                place += size
        if size == 1 and not left_out:
            return History(events, history.end, history.plane)
        size = max(1, size // 2)


@final
class Kept(Struct, frozen=True):
    """A history that is kept, as a file has it; `decided`: what the clause's document says."""

    clause: str
    plane: str
    why: str
    decided: Says
    end: RunEnd
    events: Sequence[msgspec.Raw]

    @classmethod
    def of(cls, clause: str, history: History, why: str, decided: Says, codec: Codec) -> Kept:
        lines = [msgspec.Raw(codec.encode(event)) for event in history.events]
        return cls(clause, history.plane, why, decided, end=history.end, events=lines)

    def history(self, codec: Codec) -> History:
        return History([codec.decode(bytes(line)) for line in self.events], self.end, self.plane)


def write(path: Path, kept: Kept) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")


def read(path: Path) -> Kept:
    return msgspec.json.decode(path.read_bytes(), type=Kept)


def words_of(history: History, clause: str, promises: Promises) -> Mapping[str, Any]:
    """What both say, for people who look at a disagreement."""
    found, crashed = verdict(clause, history, promises)
    return {
        "reading": [[word.says.value, *map(str, word.about)] for word in READINGS[clause](history)],
        "rules": found.verdict.value if found else "none",
        "violations": [one.message for one in found.violations[:5]] if found else [],
        "reason": crashed or (found.reason if found else ""),
    }
