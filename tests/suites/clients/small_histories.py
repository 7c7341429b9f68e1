"""Small histories of one partition in words, such as `p sends a; p acks a@0; c polls a@0`.

Each step is a process, what it does, and the messages, with their offsets where it knows them. The
same words are judged by our rules and by a slow port of Jepsen's analyses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.testing import HistoryBuilder, Outcome, judge
from fencepost_kafka import (
    ConsumerPositioned,
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses if clause.id.startswith("JEPSEN-")}
RULES = [rule for rule in rules.ALL if rule.clause in CLAUSES]
READER = "reader"
"""The client that reads the partition from start to end after the run."""
OUTCOMES = {"acks": "ok", "loses": "unknown", "fails": "failed"}
"""How a send ends: acknowledged, without an answer, or refused for good."""


class Message(NamedTuple):
    """A message, and where it lies; -1: the process does not know."""

    name: str
    offset: int = -1


class Step(NamedTuple):
    """`sends` begins writes that one of OUTCOMES ends; `polls` gets messages; `goes` is sent by a
    command to an offset (-2: the beginning, -1: the end), as `c goes to@1`."""

    process: str
    does: str
    messages: Sequence[Message] = ()


def steps(words: str) -> Sequence[Step]:
    """The steps that these words say."""
    found = []
    for step in words.split(";"):
        process, does, *messages = step.split()
        pairs = (message.partition("@") for message in messages)
        found.append(
            Step(process, does, [Message(name, int(at) if at else -1) for name, _, at in pairs])
        )
    return found


def finally_read(history: Sequence[Step], end: int = -1) -> Sequence[Step]:
    """The same, and at the end a reading that returns what polls have shown: as Jepsen's clients
    poll until they have seen everything."""
    seen = {
        message.offset: message
        for step in history
        if step.does == "polls"
        for message in step.messages
    }
    end = max([end, *(offset + 1 for offset in seen)])
    shown = [seen[offset] for offset in sorted(seen)]
    read = [Step(READER, "polls", shown)] if shown else []
    return [*history, *read, Step(READER, "reads", [Message("", end)])]


def violated(history: Sequence[Step]) -> frozenset[str]:
    """The anomalies that our rules find."""
    h = HistoryBuilder()
    for step in history:
        _add(h, step)
    # A plane that no system here has: these clauses bind every system.
    found = judge(h.events(), RULES, CLAUSES, h.end(True), "any").verdicts
    prefix = len("JEPSEN-")
    return frozenset(
        clause[prefix:] for clause, one in found.items() if one.verdict is Outcome.VIOLATED
    )


def _add(h: HistoryBuilder, step: Step) -> None:
    process, where = f"clients/{step.process}#1", {"topic": "orders", "partition": 0}
    match step.does:
        case "sends":
            for one in step.messages:
                h.add(
                    process,
                    ProduceInvoked(operation=one.name, acks=-1, idempotent=True, **where),
                )
        case "polls":
            names, offsets = zip(*((one.name, one.offset) for one in step.messages), strict=True)
            final = step.process == READER
            h.add(process, Polled(offsets=offsets, operations=names, final=final, **where))
        case "goes":
            h.add(process, ConsumerPositioned(offset=step.messages[0].offset, **where))
        case "reads":
            end, asked_ns = step.messages[0].offset, h.now_ns
            body = ReadCompleted(
                start=0, end=end, outcome="ok", error="", asked_ns=asked_ns, **where
            )
            h.add(process, body)
        case _:
            for one in step.messages:
                body = ProduceCompleted(
                    operation=one.name,
                    acks=-1,
                    outcome=OUTCOMES[step.does],
                    offset=one.offset,
                    error="",
                    **where,
                )
                h.add(process, body)
