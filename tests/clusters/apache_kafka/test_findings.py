"""Each known finding is shown by the history that is kept with it, and reported as known."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from counter_histories import Asked, counters
from msgspec import structs

from fencepost import Event, Evidence, KnownFinding
from fencepost.events import Codec
from fencepost.history import merge
from fencepost.history.run_end import RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.judging.attribution import attributed
from fencepost.judging.folder import judge_folder
from fencepost.judging.judge import judge
from fencepost.judging.known_findings import bearing_on
from fencepost.judging.verdicts import Broken, Judgement, Outcome, Verdict
from fencepost.model.clock import SECOND
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.schedule import read
from fencepost_clusters.apache_kafka.findings import known_findings
from fencepost_clusters.apache_kafka.metadata.on_disk import MetadataStateFound
from fencepost_kafka import (
    ConsumerPositioned,
    ControllerElected,
    FollowingStarted,
    HeartbeatAnswered,
    HeartbeatRefused,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    Polled,
    partition_of,
)

BESIDE = {
    "findings/epochs/history.ndjson.gz": ("KR-09", "KR-10", "KR-11"),
    "findings/cleared-leader-blocks-registration/history.ndjson.gz": (
        *("AVAIL-recovered", "KR-36", "QC-11"),
    ),
    "findings/resigned-leader-acts/history.ndjson.gz": ("KR-11",),
    "findings/superseded-broker-leads/history.ndjson.gz": (
        *("AVAIL-recovered", "RP-05", "RP-06", "RP-13", "RP-24"),
    ),
}
"""The clauses of other findings that a history shows as well: old releases break several."""
CUT_SHORT = ("findings/removed-voter-ends-leader/history.ndjson.gz",)
"""The histories of runs that a process has ended by its own end."""


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def folder_of(finding: KnownFinding, path: Path) -> RunFolder:
    """A copy of the run that is kept with a finding."""
    kept = Path(str(files("fencepost_clusters.apache_kafka"))) / finding.history
    shutil.copytree(kept.parent, path)
    if kept.suffix == ".gz":
        (path / kept.stem).write_bytes(gzip.decompress(kept.read_bytes()))
    return RunFolder(path)


Shown = Callable[[KnownFinding], tuple[Judgement, RunEnd]]


@pytest.fixture(scope="module")
def shown(plugins: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The verdicts of the run that is kept with a finding; made once for each run, since several
    findings may share it."""
    made: dict[str, tuple[Judgement, RunEnd]] = {}

    def of(finding: KnownFinding) -> tuple[Judgement, RunEnd]:
        if finding.history not in made:
            folder = folder_of(finding, tmp_path_factory.mktemp("finding") / "run")
            made[finding.history] = judge_folder(folder, plugins.promises)
        return made[finding.history]

    return of


@pytest.mark.parametrize("finding", known_findings(), ids=lambda one: one.id)
def test_the_history_of_a_finding_shows_it(finding: KnownFinding, shown: Shown) -> None:
    judgement, end = shown(finding)
    assert end.complete is (finding.history not in CUT_SHORT)
    violated = set(judgement.of(Outcome.VIOLATED))
    assert set(finding.clauses) <= violated
    own = of_its_own(finding)
    assert violated <= {*own, *BESIDE.get(finding.history, ())}
    assert {judgement.verdicts[clause].known for clause in violated & own} == {(finding.id,)}
    assert judgement.broken == ()


Judged = Callable[[KnownFinding], tuple[Judgement, Sequence[Event]]]


@pytest.fixture(scope="module")
def judged(plugins: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The verdicts of a finding's history before any is known, and its events; each made once."""
    promises = plugins.promises
    codec = Codec(promises.kinds)
    made: dict[str, tuple[Judgement, Sequence[Event]]] = {}

    def of(finding: KnownFinding) -> tuple[Judgement, Sequence[Event]]:
        if finding.history not in made:
            folder = folder_of(finding, tmp_path_factory.mktemp("finding") / "run")
            reading = merge.read(folder, codec)
            plane = promises.plane(finding.system)
            judgement = judge(reading, promises.rules, promises.clauses, lambda: reading.end, plane)
            made[finding.history] = judgement, list(merge.read(folder, codec))
        return made[finding.history]

    return of


@pytest.mark.parametrize("finding", known_findings(), ids=lambda one: one.id)
def test_the_same_violations_are_new_without_one_point_of_the_cause(
    finding: KnownFinding, judged: Judged
) -> None:
    """Each time the history is changed in one point, and in no other."""
    judgement, events = judged(finding)
    asked = Asked()
    assert attributed(judgement, [asked.listening(finding)], events).broken == new_anyway(finding)
    assert set(asked.kinds) <= set(finding.reads)
    names, known = [], []
    for name, change in counters(finding, asked):
        changed = change(events)
        assert changed != events, name
        names.append(name)
        if not set(attributed(judgement, [finding], changed).broken) >= set(finding.clauses):
            known.append(name)
    assert known == []
    assert any("too long ago" in name for name in names)


def of_id(name: str) -> KnownFinding:
    return next(one for one in known_findings() if one.id == name)


def test_what_the_holder_of_an_id_fetched_itself_does_not_make_it_the_refused_processs_doing(
    judged: Judged,
) -> None:
    """Both are targets of the fault that doubled the id."""
    finding = of_id("refused-duplicate-follows")
    judgement, events = judged(finding)

    def by_holder(event: Event) -> Event:
        if isinstance(event.body, FollowingStarted | LogAppended):
            return structs.replace(event, process=event.process.replace("-duplicate", ""))
        return event

    moved = [by_holder(event) for event in events]
    assert moved != events
    assert {"RP-06", "RP-13"} <= set(attributed(judgement, [finding], moved).broken)


def test_what_a_leader_of_a_later_epoch_lacks_is_not_known_by_two_that_led_in_one(
    judged: Judged,
) -> None:
    """An hour later another broker led with an empty log."""
    finding = of_id("superseded-broker-leads")
    judgement, events = judged(finding)
    verdict = judgement.verdicts["RP-06"]
    (broken,) = verdict.violations
    later = structs.replace(broken, facts={**broken.facts, "epoch": 60})
    both = structs.replace(verdict, violations=(broken, later), violated=2)
    again = replace(judgement, verdicts={**judgement.verdicts, "RP-06": both})
    assert "RP-06" in attributed(again, [finding], events).broken


@pytest.mark.parametrize("answered_s", [1, None], ids=["right after the election", "never"])
def test_a_heartbeat_that_was_accepted_long_ago_looked_for_silent_brokers(
    answered_s: int | None, judged: Judged
) -> None:
    """And where no answer is printed at all, that one is missing shows nothing."""
    finding = of_id("no-heartbeat-no-fencing")
    judgement, events = judged(finding)
    accepted = [one for one in events if isinstance(one.body, HeartbeatAnswered)]
    (*_, elected) = (one for one in events if isinstance(one.body, ControllerElected))
    changed = [one for one in events if one not in accepted]
    if answered_s is not None:
        at_ns = elected.at_ns + answered_s * SECOND
        early = structs.replace(accepted[0], process=elected.process, at_ns=at_ns)
        changed = sorted([*changed, early], key=lambda one: one.at_ns)
    assert set(finding.clauses) <= set(attributed(judgement, [finding], changed).broken)


def new_anyway(finding: KnownFinding) -> tuple[str, ...]:
    """The clauses of other findings that its history shows as well, in the order of verdicts."""
    return tuple(c for c in BESIDE.get(finding.history, ()) if c not in of_its_own(finding))


def of_its_own(finding: KnownFinding) -> set[str]:
    """The clauses that a finding breaks, itself or in its wake."""
    follows = () if finding.wake is None else finding.wake.follows
    return {*finding.clauses, *(one.clause for one in follows)}


def test_a_process_that_was_not_refused_yet_may_misplace_replicas(judged: Judged) -> None:
    """One whose id was taken over sent its directories 13 ms before its first heartbeat was
    refused: the record that misplaces the replica is the cause, and the refusal only follows."""
    (finding,) = (one for one in known_findings() if one.id == "refused-duplicate")
    judgement, events = judged(finding)
    unrefused = [one for one in events if not isinstance(one.body, HeartbeatRefused)]
    assert len(unrefused) < len(events)
    assert attributed(judgement, [finding], unrefused).broken == ()


SENT_BACK = "JEPSEN-nonmonotonic-poll"


@pytest.mark.parametrize(
    "finding",
    [one for one in known_findings() if SENT_BACK in one.clauses],
    ids=lambda one: one.id,
)
def test_a_consumer_that_was_sent_back_by_no_deposed_leader_is_new(
    finding: KnownFinding, plugins: Plugins, judged: Judged
) -> None:
    """Then the rule itself has other words for it."""
    assert finding.clauses == (SENT_BACK,)
    judgement, events = judged(finding)
    assert attributed(judgement, [finding], events).broken == ()
    # The broker that refused the offset still leads: the messages are gone.
    led = [event for event in events if not isinstance(event.body, PartitionCommitted)]
    promises = plugins.promises
    plane = promises.plane(finding.system)
    end = RunEnd(complete=True, ended_at_ns=led[-1].at_ns)
    others = judge(led, promises.rules, promises.clauses, lambda: end, plane)
    assert others.verdicts[SENT_BACK].verdict is Outcome.VIOLATED
    assert set(attributed(others, [finding], led).broken) >= {SENT_BACK}


@pytest.mark.parametrize(("back", "known"), [(0, True), (-50, False)])
def test_a_consumer_is_sent_back_by_a_lost_message_but_not_by_one_that_was_kept(
    back: int, known: bool, plugins: Plugins, judged: Judged
) -> None:
    (finding,) = (one for one in known_findings() if one.id == "refused-duplicate-follows")
    judgement, events = judged(finding)
    lost = judgement.verdicts["JEPSEN-lost-write"].violations[0].facts
    topic, _, number = str(lost["partition"]).rpartition("-")
    partition, offset = int(number), int(str(lost["offset"])) + back
    last = events[-1]
    bodies = (
        Polled(
            topic=topic,
            partition=partition,
            offsets=(offset,),
            operations=("op",),
            final=False,
        ),
        ConsumerPositioned(
            topic=topic, partition=partition, offset=0, out_of_range=True, refused_by=1
        ),
        Polled(topic=topic, partition=partition, offsets=(0,), operations=("op",), final=False),
    )
    consumer = [
        structs.replace(
            last, process="clients/consumer-9#1", node_seq=number, body=body, cause=None
        )
        for number, body in enumerate(bodies)
    ]
    changed = [*events[:-1], *consumer, last]
    promises = plugins.promises
    plane = promises.plane(finding.system)
    end = RunEnd(complete=True, ended_at_ns=last.at_ns)
    others = judge(changed, promises.rules, promises.clauses, lambda: end, plane)
    assert others.verdicts[SENT_BACK].verdict is Outcome.VIOLATED
    assert (SENT_BACK not in attributed(others, [finding], changed).broken) is known


@pytest.mark.parametrize(("beyond", "known"), [(0, True), (10_000, False)])
def test_a_holder_lacks_what_the_refused_process_has_stored_and_nothing_else(
    beyond: int, known: bool, judged: Judged
) -> None:
    """Here the holder's next process is elected, long after the refused one has ended."""
    (finding,) = (one for one in known_findings() if one.id == "refused-duplicate-follows")
    judgement, events = judged(finding)

    def stored(event: Event) -> Event:
        body = event.body
        if not isinstance(body, LogAppended) or "-duplicate#" not in event.process:
            return event
        base_offset, log_end = body.base_offset + beyond, body.log_end + beyond
        other = structs.replace(body, base_offset=base_offset, log_end=log_end)
        return structs.replace(event, body=other)

    changed = [stored(event) for event in events]
    new = set(attributed(judgement, [finding], changed).broken)
    assert not new if known else new >= {*finding.clauses}


@pytest.mark.parametrize(
    ("beyond", "before", "known"), [(0, False, True), (10_000, False, False), (0, True, False)]
)
def test_a_consumer_reads_what_is_lost_then_but_nothing_else_that_a_member_lacks(
    beyond: int, before: bool, known: bool, judged: Judged
) -> None:
    """By the words of RP-07, after a member of the ISR has followed the holder, or before that."""
    (finding,) = (one for one in known_findings() if one.id == "refused-duplicate-follows")
    judgement, events = judged(finding)
    number = next(n for n, event in enumerate(events) if isinstance(event.body, LogTruncated))
    dropped = events[number].body
    assert isinstance(dropped, LogTruncated)
    offset = dropped.from_log_end - 1 + beyond
    read = Polled(
        topic=dropped.topic,
        partition=dropped.partition,
        offsets=(offset,),
        operations=("op",),
        final=False,
    )
    place = 0 if before else number + 1
    poll = structs.replace(events[place], process="clients/consumer-9#1", body=read, cause=None)
    changed = [*events[:place], poll, *events[place:]]
    facts = {"offset": offset, "ends": (dropped.to_offset,), "partition": partition_of(dropped)}
    broken = Broken(at=poll.ref, evidence=Evidence.PEER, message="", facts=facts)
    verdict = Verdict(Outcome.VIOLATED, 1, Evidence.PEER, "", violated=1, violations=(broken,))
    others = Judgement({**judgement.verdicts, "RP-07": verdict})
    assert ("RP-07" not in attributed(others, [finding], changed).broken) is known


@pytest.mark.parametrize("known", [True, False])
def test_a_controller_holds_the_settings_of_a_deleted_topic_but_nothing_else_that_differs(
    known: bool, plugins: Plugins, judged: Judged
) -> None:
    (finding,) = (one for one in known_findings() if one.id == "deleted-topic-keeps-settings")
    _, events = judged(finding)

    def of_a_controller(event: Event) -> Event:
        body = event.body
        if not isinstance(body, MetadataStateFound) or not body.orphans:
            return event
        sound = body.sound if known else "other"
        return structs.replace(event, body=structs.replace(body, slot="controller-9", sound=sound))

    changed = [of_a_controller(event) for event in events]
    promises = plugins.promises
    plane = promises.plane(finding.system)
    end = RunEnd(complete=True, ended_at_ns=changed[-1].at_ns)
    others = judge(changed, promises.rules, promises.clauses, lambda: end, plane)
    assert others.verdicts["KR-24"].verdict is Outcome.VIOLATED
    assert ("KR-24" not in attributed(others, [finding], changed).broken) is known


@pytest.mark.parametrize(
    ("name", "kind", "clause"),
    [
        ("cleared-leader-blocks-registration", "apache_kafka.controller_failed", "KR-36"),
        ("cleared-leader-keeps-broker-out", "broker.heartbeat_refused", "AVAIL-recovered"),
        ("removed-voter-ends-leader", "apache_kafka.controller_failed", "KR-36"),
    ],
)
def test_another_failure_is_new(
    name: str, kind: str, clause: str, plugins: Plugins, judged: Judged
) -> None:
    (finding,) = (one for one in known_findings() if one.id == name)
    _, events = judged(finding)

    def otherwise(event: Event) -> Event:
        if event.kind != kind:
            return event
        return structs.replace(event, body=structs.replace(event.body, error="other"))

    changed = [otherwise(event) for event in events]
    promises = plugins.promises
    plane = promises.plane(finding.system)
    end = RunEnd(complete=True, ended_at_ns=changed[-1].at_ns)
    others = judge(changed, promises.rules, promises.clauses, lambda: end, plane)
    assert clause in attributed(others, [finding], changed).broken


def other_release(finding: KnownFinding) -> str:
    """One in which no run has shown the finding, tried or not."""
    return next((one.version for one in reversed(finding.seen) if not one.runs), "9.9.9")


@pytest.mark.parametrize("finding", known_findings(), ids=lambda one: one.id)
def test_it_is_new_in_a_release_that_no_run_showed_it_in(
    finding: KnownFinding, judged: Judged
) -> None:
    """Findings are of some releases, so in another one such a violation is new."""
    judgement, events = judged(finding)
    versions = {finding.system: other_release(finding)}
    there = bearing_on(known_findings(), finding.system, versions)
    assert set(finding.clauses) <= set(attributed(judgement, there, events).broken)


def test_the_release_of_a_run_is_that_of_its_folder(plugins: Plugins, tmp_path: Path) -> None:
    finding = of_id("no-check-quorum")
    folder = folder_of(finding, tmp_path / "run")
    info = folder.info()
    recorded = info.versions.get(finding.system) or info.system.partition("@")[2]
    text = (folder.path / "run.json").read_text()
    (folder.path / "run.json").write_text(text.replace(recorded, other_release(finding)))
    judgement, _ = judge_folder(folder, plugins.promises)
    assert set(finding.clauses) <= set(judgement.broken)


@pytest.mark.parametrize("finding", known_findings(), ids=lambda one: one.id)
def test_a_finding_can_be_replayed(finding: KnownFinding) -> None:
    kept = Path(str(files("fencepost_clusters.apache_kafka")))
    assert read(kept / finding.schedule).injections
    system = RunFolder((kept / finding.schedule).parent).info().system
    assert system.partition("@")[0] == finding.system
    assert finding.versions
    assert all(0 <= one.runs <= one.of for one in finding.seen)


def test_a_plugin_lists_them(plugins: Plugins) -> None:
    assert known_findings()
    assert all(one in plugins.known_findings for one in known_findings())
