"""What the function of a known finding may ask of the run around a violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from attribution_scenes import KNOWN, VICTIM, Story, caused

from fencepost import Facts, PhaseStarted, Scene, Scope, process_scope
from fencepost.events import FaultTookEffect
from fencepost_kafka import LogTruncated, partition_of


def known(story: Story, answer: Callable[[Scene], bool]) -> bool:
    """Whether all violations are the finding whose function this is."""
    return story.broken(replace(KNOWN, caused=answer)) == ()


def dropped(within_ms: int = 0) -> Callable[[Scene], bool]:
    """A finding that anything may cause, by what it leaves."""
    return lambda scene: any(scene.traces(LogTruncated, within_ms=within_ms))


def paused(within_ms: int = 0) -> Callable[[Scene], bool]:
    return lambda scene: any(scene.faults("pause", within_ms=within_ms))


@pytest.mark.parametrize(("at_s", "found"), [(12, True), (10.9, False), (13.5, False)])
def test_a_trace_comes_before_the_violation_and_not_too_long_before(
    at_s: float, found: bool
) -> None:
    story = Story()
    if at_s < 13:
        story.truncate(at_s)
    story.violate(story.truncate(13, to=3))
    if at_s > 13:
        story.truncate(at_s)
    assert known(story, dropped(within_ms=2_000)) is found


def test_the_violation_itself_is_no_trace() -> None:
    story = Story()
    story.violate(story.truncate(13))
    assert not known(story, dropped())


@pytest.mark.parametrize("evidence", [True, False])
def test_a_trace_may_be_as_late_as_the_evidence_that_the_violation_names(evidence: bool) -> None:
    """Such as a broker that was not well within some time after a healing."""
    story = Story()
    at = story.add(13, VICTIM, PhaseStarted(phase="heal"))
    trace = story.truncate(13.5)
    story.violate(at, because=(trace,) if evidence else ())
    assert known(story, dropped()) is evidence


@pytest.mark.parametrize(("at_s", "since"), [(9, False), (11, True)])
def test_a_trace_may_be_asked_for_since_a_fault_began(at_s: float, since: bool) -> None:
    story = Story()
    if at_s < 10:
        story.truncate(at_s)
    story.inject(10)
    if at_s > 10:
        story.truncate(at_s)
    story.violate(story.add(13, VICTIM, PhaseStarted(phase="heal")))
    assert (
        known(
            story,
            lambda scene: any(
                any(scene.traces(LogTruncated, since=fault)) for fault in scene.faults("pause")
            ),
        )
        is since
    )


def test_only_kinds_that_the_finding_reads_are_kept() -> None:
    story = caused()
    story.violate(story.truncate(13, to=3))
    assert story.broken(replace(KNOWN, caused=dropped(), reads=())) == ("QC-17",)


@pytest.mark.parametrize(
    ("at_s", "within_ms", "found"),
    [(21, 2_000, True), (21, 500, False), (22.1, 2_000, False), (15, 0, True)],
)
def test_a_fault_causes_what_comes_soon_after_its_healing(
    at_s: float, within_ms: int, found: bool
) -> None:
    story = caused()
    story.violate(story.truncate(at_s, to=3))
    assert known(story, paused(within_ms)) is found


def test_a_fault_of_another_name_is_none() -> None:
    story = caused()
    story.violate(story.truncate(13, to=3))
    assert not known(story, lambda scene: any(scene.faults("kill", "cut")))


@pytest.mark.parametrize("took", [False, True])
def test_a_fault_that_never_took_effect_is_no_cause(took: bool) -> None:
    story = Story()
    story.inject(10, receipt=False)
    story.violate(story.truncate(13, to=3))
    if took:
        story.add(14, "harness", FaultTookEffect(fault_id="fault-1", evidence="1 message"))
    assert known(story, paused()) is took


@pytest.mark.parametrize(
    ("target", "process", "itself", "slot"),
    [
        ("broker-1#1", "broker-1#1", True, True),
        ("broker-1", "broker-1#1", True, True),
        ("broker-1#1", "broker-1#2", False, True),
        ("broker-2#1", "broker-1#1", False, False),
    ],
)
def test_a_fault_struck_a_process_or_an_earlier_one_of_its_slot(
    target: str, process: str, itself: bool, slot: bool
) -> None:
    story = Story()
    story.inject(10, target=target)
    story.violate(story.truncate(13, to=3))
    assert known(story, lambda s: any(f.struck(process) for f in s.faults("pause"))) is itself
    assert known(story, lambda s: any(f.struck_slot(process) for f in s.faults("pause"))) is slot


@pytest.mark.parametrize(
    ("at_s", "operation", "arguments", "found"),
    [
        (10, "alter_settings", '{"topic":"t"}', True),
        (10, "alter_settings", '{"topic":"u"}', False),
        (10, "alter_settings", "", False),
        (10, "create_topic", '{"topic":"t"}', False),
        (7.9, "alter_settings", '{"topic":"t"}', False),
        (13.5, "alter_settings", '{"topic":"t"}', False),
    ],
)
def test_an_operation_is_a_cause_for_some_time_from_when_it_was_asked_for(
    at_s: float, operation: str, arguments: str, found: bool
) -> None:
    story = Story()
    if at_s < 13:
        story.ask(at_s, arguments, operation)
    story.violate(story.truncate(13, to=3))
    if at_s > 13:
        story.ask(at_s, arguments, operation)

    def asked(scene: Scene) -> bool:
        operations = scene.operations("alter_settings", within_ms=5_000)
        return any(one.arguments.get("topic") == "t" for one in operations)

    assert known(story, asked) is found


def test_facts_are_asked_for_by_their_type() -> None:
    facts: Facts = {
        "process": process_scope(VICTIM),
        "brokers": (Scope("broker", "1"), Scope("broker", "2")),
        "partition": Scope("partition", "t-0"),
        "offset": 7,
        "early": True,
        "error": "NONE",
    }
    story = Story()
    story.violate(story.truncate(13, to=3), facts)

    def asked(scene: Scene) -> bool:
        assert (scene.name("process"), scene.name("error"), scene.name("other")) == (VICTIM, "", "")
        assert (scene.names("brokers"), scene.names("process")) == (["1", "2"], [VICTIM])
        assert scene.names("offset") == []
        assert (scene.number("offset"), scene.number("error")) == (7, -1)
        assert (scene.flag("early"), scene.flag("offset"), scene.flag("late")) == (
            True,
            False,
            False,
        )
        (trace,) = [body for _, body in scene.traces(LogTruncated)] or [None]
        assert trace is None
        return scene.process == VICTIM

    assert known(story, asked)


def test_a_partition_is_the_same_fact_in_an_event_and_in_a_violation() -> None:
    story = caused()
    story.violate(story.truncate(13, to=3), {"partition": Scope("partition", "t-0")})
    assert known(
        story,
        lambda scene: any(
            partition_of(body) == scene.facts["partition"] for _, body in scene.traces(LogTruncated)
        ),
    )
