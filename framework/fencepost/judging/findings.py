"""Findings: what a rule may report about its clause, and the facts that it states."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from fencepost.events import Cause
from fencepost.judging.about import Fact, Facts, sentence_of


class Evidence(StrEnum):
    """Where the evidence comes from: a client that saw it, a peer, or the node itself."""

    CLIENT = "client"
    PEER = "peer"
    SELF = "self"


class Exercised(Struct, frozen=True, gc=False):
    """The situation in which the protection decides occurred, and the promise held."""

    at: Cause
    evidence: Evidence


class Violated(Struct, frozen=True, gc=False):
    """The event `at` broke the promise; `because` are the earlier events that prove it.

    `facts` say what it is about. `message` is one sentence, made of them for people (`violated`).
    """

    at: Cause
    evidence: Evidence
    message: str
    because: tuple[Cause, ...] = ()
    facts: Facts = {}


def violated(
    at: Cause,
    evidence: Evidence,
    template: str,
    because: tuple[Cause, ...] = (),
    /,
    **facts: Fact,
) -> Violated:
    """A violation with these facts; each `{name}` of the template is the fact of that name."""
    return Violated(at, evidence, sentence_of(template, facts), because, facts)


class Undecided(Struct, frozen=True, gc=False):
    """The evidence ends before the promise can be judged; `message` says why, in one sentence.

    `follows` is a clause that explains it, if that is violated: what could not be read, since the
    cluster had not recovered, is undecided because of that.
    """

    message: str
    at: Cause | None = None
    follows: str = ""


class Excused(Struct, frozen=True, gc=False):
    """The event `at` would have broken the promise, if a fault had not kept the node from keeping
    it; `message` names both, in one sentence. It counts neither for the promise nor against it."""

    at: Cause
    message: str


Finding = Exercised | Violated | Undecided | Excused
"""What a rule may report about its clause."""
Findings = Sequence[Finding]
"""What a handler, or the end of a run, finds."""
NOTHING: Final[Findings] = ()
"""What most events show: nothing."""
