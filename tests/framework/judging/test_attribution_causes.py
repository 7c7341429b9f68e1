"""The cause of a known finding: its trigger and its marks, which agree on what they name."""

from __future__ import annotations

import pytest
from attribution_scenes import KNOWN, VICTIM, Scene, caused
from msgspec import structs

from fencepost import (
    KnownFinding,
    Mark,
    PhaseStarted,
    Trigger,
)
from fencepost.events import FaultTookEffect


@pytest.mark.parametrize(("mark_s", "known"), [(12, True), (10.9, False), (13.5, False)])
def test_a_finding_that_anything_may_cause_is_known_by_its_marks(
    mark_s: float, known: bool
) -> None:
    scene = Scene()
    if mark_s < 13:
        scene.truncate(mark_s)
    scene.violate(scene.truncate(13, to=3), "it lost 3 to 8")
    if mark_s > 13:
        scene.truncate(mark_s)
    marks = (Mark(kind="replica.log_truncated", sentence=r".*from offset 5 .*", within_ms=2_000),)
    assert (scene.broken(structs.replace(KNOWN, trigger=None, marks=marks)) == ()) is known


@pytest.mark.parametrize(
    ("mark_s", "known"),
    [(None, True), (10.5, True), (11.5, False), (13.5, True)],
    ids=["never", "earlier", "within the time", "later"],
)
def test_a_mark_may_be_that_an_event_is_absent(mark_s: float | None, known: bool) -> None:
    scene = Scene()
    scene.inject(10)
    if mark_s is not None and mark_s < 13:
        scene.truncate(mark_s)
    scene.violate(scene.add(13, VICTIM, PhaseStarted(phase="heal")), "it lost 3 to 8")
    if mark_s is not None and mark_s > 13:
        scene.truncate(mark_s)
    mark = Mark(kind="replica.log_truncated", within_ms=2_000, absent=True)
    assert (scene.broken(structs.replace(KNOWN, marks=(mark,))) == ()) is known
    with pytest.raises(ValueError, match="has no cause"):
        structs.replace(KNOWN, trigger=None, marks=(mark,))


def test_the_violation_itself_is_no_mark() -> None:
    scene = Scene()
    scene.inject(10)
    scene.violate(scene.truncate(13), "it lost 3 to 8")
    assert scene.broken() == ("QC-17",)


@pytest.mark.parametrize(("evidence", "known"), [(True, True), (False, False)])
def test_a_mark_may_be_as_late_as_the_evidence_that_the_violation_names(
    evidence: bool, known: bool
) -> None:
    """Such as a broker that was not well within some time after a healing."""
    scene = Scene()
    scene.inject(10)
    at = scene.add(13, VICTIM, PhaseStarted(phase="heal"))
    mark = scene.truncate(13.5)
    scene.violate(at, "it lost 3 to 8", because=(mark,) if evidence else ())
    marks = (Mark(kind="replica.log_truncated", sentence=r".*from offset 5 .*"),)
    assert (scene.broken(structs.replace(KNOWN, marks=marks)) == ()) is known


@pytest.mark.parametrize(
    ("writer", "by", "known"),
    [
        (VICTIM, "", True),
        ("observer#1", "", False),
        ("observer#1", "observer#.+", True),
        ("observer#1", "harness", False),
        (VICTIM, "(?P<process>.+)", True),
        ("broker-1#2", "(?P<process>.+)", False),
    ],
)
def test_a_mark_is_from_a_process_that_the_trigger_was_aimed_at_or_from_a_named_one(
    writer: str, by: str, known: bool
) -> None:
    scene = Scene()
    scene.inject(10)
    scene.truncate(12, writer)
    scene.violate(scene.truncate(13, to=3), "it lost 3 to 8")
    marks = (Mark(kind="replica.log_truncated", sentence=r".*from offset 5 .*", by=by),)
    assert (scene.broken(structs.replace(KNOWN, marks=marks)) == ()) is known


@pytest.mark.parametrize("took", [False, True])
def test_a_fault_that_never_took_effect_is_no_cause(took: bool) -> None:
    scene = Scene()
    scene.inject(10, receipt=False)
    scene.truncate(12)
    scene.violate(scene.truncate(13, to=3), "it lost 3 to 8")
    if took:
        scene.add(14, "harness", FaultTookEffect(fault_id="fault-1", evidence="1 message"))
    assert (scene.broken() == ()) is took


@pytest.mark.parametrize(
    ("fault", "at", "known"),
    [
        ("kill|pause", "", True),
        ("kill|cut", "", False),
        ("pause", r"broker-(?P<broker>\d+)#\d+", True),
        ("pause", r"controller-\d+", False),
    ],
)
def test_a_trigger_names_faults_and_targets_by_regular_expressions(
    fault: str, at: str, known: bool
) -> None:
    scene = caused()
    scene.violate(scene.truncate(13, to=3), "it lost 3 to 8")
    trigger = Trigger(fault=fault, at=at)
    assert (scene.broken(structs.replace(KNOWN, trigger=trigger)) == ()) is known


NAMED = structs.replace(
    KNOWN,
    message=r"it lost (?P<topic>\w+)-(?P<partition>\d+) at broker (?P<broker>\d+)",
    trigger=Trigger(
        operation="alter_settings|delete_topic",
        arguments={"topic": r"(?P<topic>.+)", "config": {r"(?P<setting>retention\..+)": r"\d+"}},
        within_ms=5_000,
    ),
    marks=(
        Mark(
            kind=r"replica\.log_(?:truncated|appended)",
            sentence=r"dropped (?P<topic>\w+)-(?P<partition>\d+) from .*",
            by=r"broker-(?P<broker>\d+)#\d+",
        ),
    ),
)


@pytest.mark.parametrize(
    ("message", "known"),
    [
        ("it lost t-0 at broker 1", True),
        ("it lost u-0 at broker 1", False),
        ("it lost t-1 at broker 1", False),
        ("it lost t-0 at broker 2", False),
    ],
    ids=["the same", "another topic", "another partition", "another broker"],
)
def test_message_trigger_and_marks_agree_on_what_they_name(message: str, known: bool) -> None:
    scene = Scene()
    scene.ask(10, '{"topic":"t","config":{"retention.ms":100}}')
    scene.truncate(12)
    scene.violate(scene.truncate(13, to=3), message)
    assert (scene.broken(NAMED) == ()) is known


@pytest.mark.parametrize(
    ("at_s", "operation", "arguments", "known"),
    [
        (10, "delete_topic", '{"topic":"t","config":{"retention.ms":100}}', True),
        (10, "delete_topic", '{"topic":"t","config":{"a":1,"retention.bytes":100}}', True),
        (10, "create_topic", '{"topic":"t","config":{"retention.ms":100}}', False),
        (10, "delete_topic", '{"topic":"u","config":{"retention.ms":100}}', False),
        (10, "delete_topic", '{"topic":"t","config":{"retention.ms":-1}}', False),
        (10, "delete_topic", '{"topic":"t","config":{"segment.ms":100}}', False),
        (10, "delete_topic", '{"topic":"t","config":""}', False),
        (10, "delete_topic", "", False),
        (7.9, "delete_topic", '{"topic":"t","config":{"retention.ms":100}}', False),
        (12.5, "delete_topic", '{"topic":"t","config":{"retention.ms":100}}', False),
        (13.5, "delete_topic", '{"topic":"t","config":{"retention.ms":100}}', False),
    ],
)
def test_an_operation_is_a_cause_for_some_time_from_when_it_was_asked_for(
    at_s: float, operation: str, arguments: str, known: bool
) -> None:
    """At 12.5 s it comes after the mark, at 13.5 s after the violation."""
    scene = Scene()
    if at_s < 12:
        scene.ask(at_s, arguments, operation)
    scene.truncate(12)
    if 12 < at_s < 13:
        scene.ask(at_s, arguments, operation)
    scene.violate(scene.truncate(13, to=3), "it lost t-0 at broker 1")
    if at_s > 13:
        scene.ask(at_s, arguments, operation)
    assert (scene.broken(NAMED) == ()) is known


def test_marks_agree_with_each_other_on_what_no_message_names() -> None:
    """Two deletions: each mark alone is there, but for two topics."""
    marks = tuple(
        Mark(kind="replica.log_truncated", sentence=sentence)
        for sentence in (
            r"dropped \w+-(?P<n>\d+) from offset 5 .*",
            r"dropped t-(?P<n>\d+) .* 7 .*",
        )
    )
    finding = structs.replace(KNOWN, marks=marks)
    for partition, known in ((1, False), (0, True)):
        scene = Scene()
        scene.inject(10)
        scene.truncate(11, partition=2)
        scene.truncate(11.5)
        scene.truncate(12, to=7, partition=partition)
        scene.violate(scene.truncate(13, to=3), "it lost 3 to 8")
        assert (scene.broken(finding) == ()) is known


@pytest.mark.parametrize("named", [{}, {"fault": "pause", "operation": "delete_topic"}])
def test_a_trigger_is_either_a_fault_or_an_operation(named: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either a fault or an operation"):
        Trigger(**named)  # type: ignore[arg-type]


def test_a_finding_without_a_cause_is_refused() -> None:
    with pytest.raises(ValueError, match="has no cause"):
        KnownFinding(**{**structs.asdict(KNOWN), "trigger": None, "marks": ()})
