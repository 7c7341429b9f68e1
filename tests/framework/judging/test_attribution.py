"""A violation is a known finding only if its cause is there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attribution_scenes import KNOWN, VICTIM, WAKE, Story, caused
from msgspec import structs

import fencepost
from fencepost import Numbers, Seen
from fencepost.judging.attribution import attributed
from fencepost.judging.known_findings import bearing_on, elsewhere
from fencepost.judging.verdicts import AsKnown, Judgement, Outcome
from fencepost.runs.run import explain_violations
from fencepost_kafka import LogTruncated, ProduceCompleted


def test_a_known_finding_turns_nothing_red() -> None:
    scene = caused()
    scene.violate(scene.truncate(21, to=3))
    judgement = attributed(Judgement(scene.verdicts), [KNOWN], scene.events)
    assert judgement.verdicts["QC-17"].known == ("serves-late",)
    assert judgement.of(Outcome.VIOLATED) == ("QC-17",)
    assert judgement.broken == ()


def test_a_finding_of_other_versions_is_named_and_the_violation_stays_new() -> None:
    scene = caused()
    scene.violate(scene.truncate(21, to=3))
    scene.violate(scene.truncate(22.1, to=3))
    seen = tuple(Seen(version, 1, 1) for version in ("4.1.0", "4.3.1"))
    other = replace(KNOWN, seen=(*seen, Seen("4.4.0", 0, 2)))
    judgement = attributed(Judgement(scene.verdicts), [], scene.events, [other])
    assert judgement.broken == ("QC-17",)
    first, late = judgement.verdicts["QC-17"].violations
    assert (first.known, first.as_known) == ("", AsKnown("serves-late", ("4.1.0", "4.3.1")))
    assert first.says == "it broke (as serves-late, known in 4.1.0 and 4.3.1)"
    assert (late.as_known, late.says) == (None, "it broke")
    assert first.says in explain_violations(judgement.verdicts)


def test_a_violation_that_is_known_here_is_not_as_one_elsewhere() -> None:
    scene = caused()
    scene.violate(scene.truncate(21, to=3))
    judgement = attributed(Judgement(scene.verdicts), [KNOWN], scene.events, [KNOWN])
    (broken,) = judgement.verdicts["QC-17"].violations
    assert (broken.known, broken.as_known) == ("serves-late", None)


def test_a_finding_that_stands_in_for_one_of_a_build_is_known_and_named_with_its_release() -> None:
    scene = caused()
    scene.violate(scene.truncate(21, to=3))
    of_4_4 = replace(KNOWN, seen=(Seen("4.4.0", 1, 1),))
    judged = Judgement(scene.verdicts)
    for version, named in (("4.5.0-SNAPSHOT", True), ("4.4.0", False)):
        judgement = attributed(judged, [of_4_4], scene.events, version=version)
        (broken,) = judgement.verdicts["QC-17"].violations
        assert broken.known == "serves-late"
        assert broken.as_known == (AsKnown("serves-late", ("4.4.0",)) if named else None)
        assert judgement.broken == ()


@pytest.mark.parametrize(
    ("system", "version", "names"),
    [
        ("acme/lamps", "1.0", False),
        ("acme/lamps@2.0", "2.0", True),
        ("acme/lamps@2.0", "3.0", True),
        ("acme/bulbs", "1.0", False),
    ],
    ids=["this version", "one that was tried in vain", "another version", "another system"],
)
def test_a_finding_is_one_of_elsewhere_in_other_versions_of_its_system(
    system: str, version: str, names: bool
) -> None:
    seen = (Seen("1.0", 1, 1), Seen("2.0", 0, 1))
    finding = replace(KNOWN, system="acme/lamps", seen=seen)
    family = system.partition("@")[0]
    assert bool(elsewhere([finding], system, {family: version})) is names


def test_a_violation_long_after_the_fault_was_healed_is_new() -> None:
    scene = caused()
    scene.violate(scene.truncate(22.1, to=3))
    assert scene.broken() == ("QC-17",)


def test_a_violation_before_the_fault_is_new() -> None:
    scene = Story()
    at = scene.truncate(9, to=5)
    scene.violate(at)
    scene.inject(10)
    assert scene.broken() == ("QC-17",)


def test_a_fault_of_links_was_aimed_at_the_processes_of_its_slots() -> None:
    scene = Story()
    scene.inject(10, target=VICTIM.partition("#")[0])
    scene.truncate(12)
    scene.violate(scene.truncate(13, to=3))
    assert scene.broken() == ()


@pytest.mark.parametrize(
    "other",
    [
        {"fault": "kill"},
        {"target": "broker-2#1"},
        {"arguments": '{"hard":false}'},
        {"arguments": ""},
    ],
    ids=["another fault", "another process", "other arguments", "unknown arguments"],
)
def test_a_violation_by_another_cause_is_new(other: dict[str, str]) -> None:
    scene = Story()
    scene.inject(10, **other)  # type: ignore[arg-type]
    scene.truncate(12)
    scene.violate(scene.truncate(13, to=3))
    assert scene.broken() == ("QC-17",)


@pytest.mark.parametrize(
    ("process", "to", "partition"),
    [("broker-2#1", 5, 0), (VICTIM, 4, 0), (VICTIM, 5, 1)],
    ids=["of another process", "with another sentence", "of another partition"],
)
def test_a_violation_without_the_mark_of_the_mechanism_is_new(
    process: str, to: int, partition: int
) -> None:
    scene = Story()
    scene.inject(10)
    scene.truncate(12, process, to, partition)
    scene.violate(scene.truncate(13, to=3))
    assert scene.broken() == ("QC-17",)


def test_a_mark_from_before_the_fault_is_none() -> None:
    scene = Story()
    scene.truncate(9)
    scene.inject(10)
    scene.violate(scene.truncate(13, to=3))
    assert scene.broken() == ("QC-17",)


def test_an_injection_is_recorded_once_it_was_measured_which_may_be_after_the_violation() -> None:
    scene = Story()
    scene.truncate(12)
    scene.violate(scene.truncate(13, to=3))
    scene.inject(10, noted_s=14)
    assert scene.broken() == ()


@pytest.mark.parametrize("violated", [2, 3])
def test_a_violation_that_may_be_new_fails_beside_a_known_one(violated: int) -> None:
    scene = caused()
    scene.violate(scene.truncate(13, to=3))
    if violated == 2:  # one is new
        scene.violate(scene.truncate(13, to=3), {"leaders": 2})
    else:  # one was not kept
        verdict = structs.replace(scene.verdicts["QC-17"], violated=2)
        scene.verdicts["QC-17"] = verdict
    assert scene.broken() == ("QC-17",)


def test_a_finding_of_another_clause_does_not_apply_to_this_one() -> None:
    scene = caused()
    scene.violate(scene.truncate(13, to=3))
    assert scene.broken(replace(KNOWN, clauses=("QC-18",))) == ("QC-17",)


@pytest.mark.parametrize(
    ("at_s", "partition", "offset", "clause", "known"),
    [
        (14, 0, 4, "RP-06", True),
        (14, 1, 4, "RP-06", False),
        (14, 0, 9, "RP-06", False),
        (12.5, 0, 4, "RP-06", False),
        (14, 0, 4, "RP-08", False),
    ],
    ids=["touched", "another partition", "another offset", "before", "another clause"],
)
def test_a_consequence_is_known_where_the_finding_has_touched_something(
    at_s: float, partition: int, offset: int, clause: str, known: bool
) -> None:
    scene = caused()
    if at_s < 13:
        scene.violate(scene.truncate(at_s, "broker-9#1", 1, partition), {"offset": offset}, clause)
    scene.violate(scene.truncate(13, to=3))
    if at_s > 13:
        scene.violate(scene.truncate(at_s, "broker-9#1", 1, partition), {"offset": offset}, clause)
    assert (scene.broken() == ()) is known


@pytest.mark.parametrize(
    ("at_s", "partition", "known"), [(13.5, 0, True), (12.5, 0, False), (13.5, 1, False)]
)
def test_what_others_drop_after_the_finding_is_affected_too(
    at_s: float, partition: int, known: bool
) -> None:
    def dropped(body: LogTruncated) -> Numbers:
        return body.to_offset, body.from_log_end - 1

    wake = replace(WAKE, spreads={LogTruncated: dropped})
    scene = caused()
    if at_s < 13:
        scene.truncate(at_s, "broker-9#1", 1, partition)
    scene.violate(scene.truncate(13, to=3))
    if at_s > 13:
        scene.truncate(at_s, "broker-9#1", 1, partition)
    scene.violate(scene.truncate(14, to=8), {"offset": 2}, "RP-06")
    assert (scene.broken(replace(KNOWN, wake=wake)) == ()) is known


@pytest.mark.parametrize(("at_s", "known"), [(12.5, True), (14, False)])
def test_what_was_lost_stands_before_the_loss(at_s: float, known: bool) -> None:
    """A write of later times is lost by another cause."""
    scene = caused()
    early = scene.truncate(12.5, "broker-9#1", 1)
    scene.violate(scene.truncate(13, to=3))
    late = scene.truncate(14, "broker-9#1", 1)
    scene.violate(early if at_s < 13 else late, {"offset": 4}, "RP-07")
    assert (scene.broken() == ()) is known


ACKNOWLEDGED = ProduceCompleted(
    operation="w", topic="t", partition=0, acks=-1, outcome="ok", offset=4, error=""
)


@pytest.mark.parametrize(("written_s", "known"), [(12.9, True), (32, True), (34, False)])
def test_what_was_written_long_after_the_finding_is_lost_by_something_else(
    written_s: float, known: bool
) -> None:
    """It has the numbers of what the finding lost, and may have been written there again."""
    scene = caused()
    broke = scene.truncate(13, to=3)
    written = scene.add(written_s, "clients/a#1", ACKNOWLEDGED)
    scene.violate(broke)
    scene.violate(scene.truncate(60, "broker-9#1", 1), {"offset": 4}, "RP-06", (written,))
    assert (scene.broken() == ()) is known


def test_a_consequence_without_the_finding_is_new() -> None:
    scene = caused()
    scene.violate(scene.truncate(14, "broker-9#1", 1), {"offset": 4}, "RP-06")
    assert scene.broken() == ("RP-06",)


@pytest.mark.parametrize(
    ("system", "versions", "bears"),
    [
        ("some/thing", {"some/thing": "1.0"}, True),
        ("some/thing@1.1", {}, True),
        ("some/thing", {"some/thing": "2.0"}, False),
        ("other/thing", {"some/thing": "1.0"}, False),
    ],
)
def test_a_finding_bears_on_the_versions_that_it_was_seen_on(
    system: str, versions: dict[str, str], bears: bool
) -> None:
    assert bool(bearing_on([KNOWN], system, versions)) is bears


@pytest.mark.parametrize("name", ["Trigger", "Mark", "Spread", "Consequence"])
def test_a_plugin_with_findings_of_the_former_shape_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(ImportError, match=rf"^fencepost\.{name} is gone: .* `caused` asks a Scene"):
        getattr(fencepost, name)
    with pytest.raises(AttributeError, match="has no attribute 'Trigge'"):
        getattr(fencepost, "Trigge")  # noqa: B009
