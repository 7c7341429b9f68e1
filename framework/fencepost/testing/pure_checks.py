"""The checks of the conformance kit that start nothing: event kinds, rules, faults, log parsers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import msgspec
from msgspec import Struct

from fencepost.events import Codec, Event, kind_name, nested_fields
from fencepost.events.traits import (
    Answering,
    Authority,
    AuthorityChange,
    Concerning,
    Operation,
    OperationEvent,
    Worded,
)
from fencepost.history.run_end import RunEnd
from fencepost.judging.attribution import attributed
from fencepost.judging.findings import Exercised, Finding, Undecided, Violated
from fencepost.judging.judge import Judge, judge
from fencepost.judging.known_findings import KnownFinding
from fencepost.judging.rules import Clause, Rule
from fencepost.model.clock import SECOND
from fencepost.model.faults.fault import Fault
from fencepost.model.system.capabilities import LogParser, ParsedEvent, ParsesLogs
from fencepost.model.system.shape import Shape
from fencepost.model.system.topology import Slot

_NO_LOG = ("", "{", "\x00\ufffd", "a line that no version of this system prints")
"""Lines that a parser must accept: a crash, a library or a container may print anything."""
_YEAR_2000_NS = 946_684_800 * SECOND


def check_event_kind(kind: type[Struct], sample: Struct) -> None:
    """A kind has a tag `plugin.name`, is frozen and flat, and an event of it survives being written
    and read. The results of its traits have the right types."""
    name = kind_name(kind)
    assert kind.__struct_config__.frozen, f"the event kind {name} is not frozen"
    nested = nested_fields(kind)
    assert not nested, (
        f"the field {nested[0]} of {name} is not flat: text, a number, a truth value, or a "
        "tuple of one of them"
    )
    codec = Codec((kind,))
    event = Event("run", "node-1#1", 0, 1, sample)
    assert codec.decode(codec.encode(event)) == event, f"an event {name} differs when read back"
    if isinstance(sample, Worded):
        words = sample.sentence()
        assert words, f"{name} has an empty sentence"
        assert "\n" not in words, f"the sentence of {name} has more than one line"
    if isinstance(sample, AuthorityChange):
        assert all(isinstance(one, Authority) for one in sample.authority()), name
        _check_types(name, sample.authority())
    if isinstance(sample, OperationEvent):
        assert all(isinstance(one, Operation) for one in sample.client_operations()), name
        _check_types(name, sample.client_operations())
    if isinstance(sample, Answering):
        answered = sample.answered_by()
        assert answered is None or tuple(map(type, answered)) == (str, int), name
    if isinstance(sample, Concerning):
        assert all(isinstance(scope, str) for scope in sample.concerns()), name


def _check_types(name: str, values: Sequence[Authority] | Sequence[Operation]) -> None:
    """Each field has the type that it is declared with: the judge and reports compare them."""
    for one in values:
        said = type(one).__name__
        try:
            again = msgspec.convert(msgspec.to_builtins(one), type(one))
        except msgspec.ValidationError as error:
            raise AssertionError(f"the {said} of {name} does not fit: {error}") from None
        for field in fields(one):
            is_type, wanted = type(getattr(one, field.name)), type(getattr(again, field.name))
            assert is_type is wanted, (
                f"{field.name} of the {said} of {name} is no {wanted.__name__}: "
                f"{getattr(one, field.name)!r}"
            )


def findings_of(rule: Rule[Any], history: Sequence[Event], end: RunEnd) -> Sequence[Finding]:
    """All findings of a rule in a history, those at its end included. An exception of the rule is
    an AssertionError."""
    clause = Clause(rule.clause, "the kit", ("the kit",), "what the rule judges")
    found: list[Finding] = []
    judging = Judge(
        (rule,), {clause.id: clause}, "the kit", lambda _, finding, at: found.append(finding)
    )
    judging.take(history)
    judging.end(end)
    assert not judging.crashed, judging.crashed[0]
    return found


def check_rule(
    rule: Rule[Any],
    violation: tuple[Sequence[Event], RunEnd],
    near_miss: tuple[Sequence[Event], RunEnd],
    undecided: tuple[Sequence[Event], RunEnd] | None = None,
) -> None:
    """A rule passes its three histories: it reports the violation; it counts the near miss as
    exercised and does not report it; it is undecided where the evidence ends.

    A rule that waits for nothing, such as one master an epoch, has no undecided history. Without
    one, the rule must be decided wherever the first two are cut off.
    """
    name = type(rule).__name__
    found = findings_of(rule, *violation)
    assert any(isinstance(one, Violated) for one in found), f"{name} misses its violation"
    found = findings_of(rule, *near_miss)
    assert not any(isinstance(one, Violated) for one in found), f"{name} reports its near miss"
    assert any(isinstance(one, Exercised) for one in found), f"{name} is not exercised by it"
    if undecided is None:
        _check_waits_for_nothing(rule, violation, near_miss)
        return
    found = findings_of(rule, *undecided)
    assert not any(isinstance(one, Violated) for one in found), (
        f"{name} reports what its history does not decide"
    )
    assert any(isinstance(one, Undecided) for one in found), f"{name} does not say that it is open"


def _check_waits_for_nothing(rule: Rule[Any], *histories: tuple[Sequence[Event], RunEnd]) -> None:
    for events, end in histories:
        # Cut off anywhere: a rule that waits for an event would say so behind the event that it
        # waits from.
        for length in range(len(events) + 1):
            found = findings_of(rule, events[:length], replace(end, complete=False))
            assert not any(isinstance(one, Undecided) for one in found), (
                f"{type(rule).__name__} waits for an event after {length} of {len(events)}: it "
                "needs an undecided history"
            )


def check_known_finding(
    finding: KnownFinding,
    rule: Rule[Any],
    known: tuple[Sequence[Event], RunEnd],
    new: tuple[Sequence[Event], RunEnd],
) -> None:
    """A finding explains each violation that the rule reports in `known`, where its mechanism was
    at work, and none in `new`, where the promise was broken without it."""
    assert finding.versions, (
        f"{finding.id} is known in no version: `seen` needs a Seen with runs above 0, of the "
        'version that the run says, or of "" for a system that says none'
    )
    for (events, end), own in ((known, True), (new, False)):
        clause = Clause(rule.clause, "the kit", ("the kit",), "what the rule judges")
        judgement = judge(events, (rule,), {clause.id: clause}, end, "the kit")
        violations = attributed(judgement, [finding], events).verdicts[clause.id].violations
        history = "the history of what is known" if own else "the history of what is new"
        assert violations, f"{history} has no violation of {clause.id}"
        for one in violations:
            assert own or not one.known, (
                f"{finding.id} takes a violation that is new for its own: {one.message}"
            )
            assert one.known or not own, (
                f"{finding.id} does not explain its own violation: {one.message}"
            )


def check_fault(make: Callable[..., Fault], **arguments: object) -> None:
    """A fault is made again from its own arguments, as replay makes it from a recorded schedule."""
    fault = make(**arguments)
    # By way of JSON, as in schedule.json: a tuple comes back as a list there.
    plain = msgspec.json.decode(msgspec.json.encode(dict(fault.arguments())))
    again = make(**plain)
    assert again == fault, f"the fault {fault.name} is another one when made of {plain}"
    assert again.name == fault.name


def check_log_parser(
    parses: ParsesLogs,
    slot: Slot,
    lines: Sequence[str],
    expected: Sequence[Struct],
    *,
    shape: Shape | None = None,
    kinds: tuple[type[Struct], ...] = (),
) -> None:
    """The parser of a slot makes exactly the expected events of recorded lines, in this order.

    A second parser makes the same ones, so parsers share no state. The events are of `kinds`, the
    plugin's own, or of those that every run has. Stamps are nanoseconds since 1970 if `wall` is
    set, and finer than a second. Lines that the system does not print make no event and no error.
    """

    def parser() -> LogParser:
        made = parses.log_parser(slot, shape or Shape())
        assert made is not None, f"{slot.name} has no log parser: it writes its own events"
        return made

    made, again = (_parsed(parser(), lines) for _ in range(2))
    assert made == again, "two parsers make different events of the same lines: they share state"
    bodies = [one.body for one in made]
    for number, (body, wanted) in enumerate(zip(bodies, expected, strict=False)):
        assert body == wanted, f"event {number} of the log is {body!r}, not {wanted!r}"
    assert len(bodies) == len(expected), f"the log makes {len(bodies)} events, not {len(expected)}"
    codec = Codec(kinds)
    for one in made:
        event = Event("run", "node-1#1", 0, one.at_ns, one.body)
        assert type(one.body) in codec.kinds.values(), (
            f"the parser makes {kind_name(type(one.body))}, a kind that was not given in `kinds`"
        )
        assert codec.decode(codec.encode(event)) == event, f"{one.body!r} differs when read back"
        assert not one.wall or one.at_ns > _YEAR_2000_NS, (
            f"the stamp {one.at_ns} of {one.body!r} is no time in nanoseconds since 1970"
        )
    stamps = {one.at_ns for one in made}
    assert len(stamps) < 2 or any(stamp % SECOND for stamp in stamps), (
        "the stamps are whole seconds: events of several processes cannot be ordered by them"
    )
    stray = _parsed(parser(), _NO_LOG)
    assert not stray, f"lines that the system does not print make {stray[0].body!r}"


def _parsed(parser: LogParser, lines: Sequence[str]) -> Sequence[ParsedEvent]:
    made: list[ParsedEvent] = []
    for line in lines:
        try:
            made += parser.parse(line)
        except Exception as error:
            raise AssertionError(f"the parser raises on the line {line!r}: {error!r}") from error
    return made


# ---------------------------------------------------------------------- checks that need a cluster
