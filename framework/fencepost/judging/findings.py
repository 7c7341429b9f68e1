"""Findings: what a rule may report about its clause, and the facts that it states.

`facts` of a finding say what is, or would be, violated. `why` of an undecided or excused one are
the facts of its reason. They are kept apart: both often name a `process`, and seldom the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from fencepost.events import Cause
from fencepost.judging.about import Fact, Facts, Reason, sentence_of


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
    `certain_ns` is when it was certain, if that was before it is returned: a rule that returns its
    violations at the end of a run knew of some ten minutes before, and a link that fails in between
    takes none of them back.
    """

    at: Cause
    evidence: Evidence
    message: str
    because: tuple[Cause, ...] = ()
    facts: Facts = {}
    certain_ns: int | None = None


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
    facts: Facts = {}
    why: Facts = {}

    @staticmethod
    def since(why: Reason, at: Cause | None = None, follows: str = "") -> Undecided:
        """What cannot be judged for that reason, whatever it would be."""
        return Undecided(why.words, at, follows, why=why.facts)

    @staticmethod
    def of(broken: Violated, why: Reason | None = None, joint: str = "; ") -> Undecided:
        """What would be that violation, if the evidence did not end; `joint` joins their words."""
        if why is None:
            return Undecided(broken.message, broken.at, facts=broken.facts)
        message = f"{broken.message}{joint}{why.words}"
        return Undecided(message, broken.at, facts=broken.facts, why=why.facts)


class Excused(Struct, frozen=True, gc=False):
    """The event `at` would have broken the promise, if a fault had not kept the node from keeping
    it; `message` names both, in one sentence. It counts neither for the promise nor against it."""

    at: Cause
    message: str
    facts: Facts = {}
    why: Facts = {}

    @staticmethod
    def of(broken: Violated, why: Reason, joint: str = "; ") -> Excused:
        """What would be that violation, without the reason; `joint` joins their words."""
        message = f"{broken.message}{joint}{why.words}"
        return Excused(broken.at, message, broken.facts, why.facts)

    @staticmethod
    def after(at: Cause, why: Reason) -> Excused:
        """All that the clause promises from an event on, by which what it stands on was lost."""
        return Excused(at, f"not judged from then on: {why.words}", why=why.facts)


Finding = Exercised | Violated | Undecided | Excused
"""What a rule may report about its clause."""
Findings = Sequence[Finding]
"""What a handler, or the end of a run, finds."""
NOTHING: Final[Findings] = ()
"""What most events show: nothing."""
