"""One run as tables, without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import final

import pyarrow as pa
import pytest
from msgspec import Struct, convert, structs, to_builtins
from sample_runs import NIGHT, ended, fenced, write

import fencepost as f
from fencepost.columns import schema_of
from fencepost.judging.tables.faults import FaultFold
from fencepost.judging.verdicts import write_verdicts
from fencepost.reporting import (
    BINS,
    Move,
    Promises,
    RunFolder,
    judge_folder,
    read,
    sentence,
)
from fencepost.testing import HistoryBuilder
from fencepost_reports.one_run.causes import LOST, NAMED, NOTHING, UNSEEN
from fencepost_reports.one_run.run import RunSource, run_tables
from fencepost_reports.one_run.tables import RunTables

KINDS = {"night", "broken", "nameless", "dark", "unended", "many", "torn", "fenced", "defect"}


@dataclass(frozen=True)
class Made:
    """The tables of every sample run."""

    of: Mapping[str, RunTables]


@pytest.fixture(scope="module")
def made(runs: Mapping[str, Path], promises: Promises) -> Made:
    assert set(runs) == KINDS
    return Made(
        {name: run_tables(RunSource(name, str(path)), promises) for name, path in runs.items()}
    )


@pytest.mark.parametrize("run", sorted(KINDS))
def test_verdicts_are_those_of_the_one_judge(
    made: Made, runs: Mapping[str, Path], promises: Promises, run: str
) -> None:
    judgement, end = judge_folder(RunFolder(runs[run]), promises, keep=False)
    tables = made.of[run]
    assert [
        (row.clause, row.verdict, row.exercised, row.reason, row.violated)
        for row in tables.verdicts
    ] == [
        (clause, v.verdict, v.exercised, v.reason, v.violated)
        for clause, v in judgement.verdicts.items()
    ]
    assert (tables.about.complete, tables.about.damage) == (end.complete, end.damage)


def test_recorded_verdicts_are_trusted_as_long_as_the_history_and_the_rules_are_the_same(
    runs: Mapping[str, Path], promises: Promises, tmp_path: Path
) -> None:
    folder = RunFolder(shutil.copytree(runs["night"], tmp_path / "night"))
    judgement, end = judge_folder(folder, promises)
    verdicts = dict(judgement.verdicts)
    verdicts["ACME-1"] = structs.replace(verdicts["ACME-1"], reason="as recorded")
    write_verdicts(folder.path / "verdicts.json", verdicts)

    def reason(by: Promises) -> str:
        found = run_tables(RunSource("night", str(folder.path)), by)
        return {row.clause: row.reason for row in found.verdicts}["ACME-1"]

    assert reason(promises) == "as recorded"
    assert reason(replace(promises, rules=promises.rules[:-1])) == ""
    with folder.history.open("ab") as history:
        history.write(b"\n")
    assert reason(promises) == ""
    (folder.path / "judged.json").unlink()
    (folder.path / "verdicts.json").unlink()
    assert end.complete


def test_a_damaged_run_is_read_and_its_damage_is_named(made: Made) -> None:
    torn = made.of["torn"].about
    assert not torn.complete
    assert any("middle of an event" in d for d in torn.damage)
    assert any("is not an event" in d for d in torn.damage)
    fine = made.of["night"].about
    assert (fine.complete, fine.damage, fine.events) == (True, (), len(NIGHT) + 1)


def test_a_fault_lasts_from_its_injection_to_its_healing(made: Made) -> None:
    tables = made.of["fenced"]
    first, second = tables.faults
    (healed,) = [row.at_ns for row in tables.shown if row.kind == "fault.healed"]
    assert (first.from_ns, first.to_ns) == (1_006_000_000, healed)
    assert (first.targets, first.receipt, first.healed) == (("broker-1",), True, True)
    assert second.to_ns == tables.about.ended_ns
    assert (second.receipt, second.healed, second.heal_receipt) == (False, False, False)
    assert tables.about.missed == ("pause (fault-2)",)


def test_a_receipt_may_come_after_the_injection() -> None:
    fold = FaultFold()
    bodies = (
        f.FaultInjected(
            fault_id="hold-1",
            fault="hold",
            targets=("broker-1",),
            receipt=False,
            evidence="nothing matched",
        ),
        f.FaultTookEffect(fault_id="hold-1", evidence="1 taken: 1 held"),
        f.FaultInjected(
            fault_id="hold-2",
            fault="hold",
            targets=("broker-2",),
            receipt=False,
            evidence="nothing matched",
        ),
    )
    for number, body in enumerate(bodies):
        fold.apply(f.Event("run", "harness", number, number, body))
    assert [(row.receipt, row.evidence) for row in fold.rows(9)] == [
        (True, "1 taken: 1 held"),
        (False, "nothing matched"),
    ]


def test_changes_of_authority_are_listed_once_each_with_what_they_take(made: Made) -> None:
    columns = ("type", "scope", "effect", "was", "epoch")
    rows = [tuple(getattr(row, c) for c in columns) for row in made.of["fenced"].authority]
    assert rows == [
        ("controller gained: quorum.controller_elected", "controller", "gives", -1, 1),
        ("broker gained: metadata.broker", "broker 1", "gives", -1, 10),
        ("partition gained: metadata.partition", "partition orders-0", "gives", -1, 5),
        ("broker gained: broker.state_changed", "broker 1", "gives", 10, 10),
        ("broker lost: controller.lease_expired", "broker 1", "takes", 10, 10),
        ("broker lost: broker.state_changed", "broker 1", "takes", 10, 10),
        ("broker lost: metadata.broker", "broker 1", "takes", 10, 10),
        ("partition gained: metadata.partition", "partition orders-0", "takes", 5, 6),
        ("broker refused: broker.heartbeat_refused", "broker 1", "refuses", 10, 10),
        ("broker refused: broker.heartbeat_refused", "broker 1", "refuses", 10, 10),
        ("broker gained: metadata.broker", "broker 1", "gives", 10, 11),
        ("partition gained: metadata.partition", "partition orders-0", "renews", 6, 7),
        ("broker gained: broker.state_changed", "broker 1", "gives", 11, 11),
    ]


def test_a_first_holder_takes_authority_from_nothing(made: Made) -> None:
    for tables in made.of.values():
        for row in tables.authority:
            if row.effect is Move.TAKES:
                earlier = [r for r in tables.authority if r.scope == row.scope]
                assert earlier[0].position < row.position


def test_states_last_until_the_next_one(made: Made) -> None:
    spans = [s for s in made.of["fenced"].spans if s.process == "broker-1#1"]
    assert [(s.state, s.epoch, s.held, s.scope) for s in spans] == [
        ("active", 10, True, "broker 1"),
        ("fenced", 10, False, "broker 1"),
        ("active", 11, True, "broker 1"),
    ]
    for one, following in pairwise(spans):
        assert one.to_ns == following.from_ns
    assert spans[-1].to_ns == made.of["fenced"].about.ended_ns


def test_a_failed_operation_is_joined_to_its_fault_and_to_the_loss_of_authority(
    made: Made,
) -> None:
    first, second = (row for row in made.of["fenced"].failures if row.what == "operation")
    assert (first.outcome, first.faults, first.subject) == ("unknown", ("fault-1",), "orders-0")
    assert first.explained_type == "broker lost: controller.lease_expired"
    assert first.began_ns < first.explained_at_ns < first.at_ns
    assert second.outcome == "failed"
    assert second.explained_type == "partition gained: metadata.partition"
    assert second.says == "produce failed NOT_LEADER"
    assert "fault-1" in second.faults


def test_a_violation_is_explained_by_the_loss_that_its_rule_names(made: Made) -> None:
    broken = [row for row in made.of["defect"].failures if row.clause == "QC-17"]
    assert broken
    for row in broken:
        assert row.explained_type == "broker lost: broker.state_changed"
        assert row.how == NAMED
        assert 0 <= row.explained_by < row.position
        assert row.lines[-1].endswith("<- this broke it")


def test_without_a_loss_of_authority_no_loss_explains_a_violation(made: Made) -> None:
    found = [row for row in made.of["broken"].failures if row.what == "violation"]
    assert found
    assert {row.explained_by for row in found} == {-1}
    assert {row.how for row in found} == {UNSEEN}


def test_a_failed_test_and_a_time_without_a_success_have_ranked_candidates(
    promises: Promises, tmp_path: Path
) -> None:
    history = fenced()
    failed = f.TestEnded(nodeid="t", outcome="failed", error="broker 1 was not active in time")
    history.add("harness", failed)
    path = write(tmp_path, "failed", ended(history))
    rows = run_tables(RunSource("failed", str(path)), promises).failures
    test = next(row for row in rows if row.what == "test")
    assert test.says == "broker 1 was not active in time"
    silence = next(row for row in rows if row.what == "silence")
    assert silence.says == "no produce of orders-0 succeeded"
    assert silence.began_ns < silence.explained_at_ns < silence.at_ns
    # What a test was about, its error does not say in facts: only what all depends on may matter.
    assert NOTHING in {one.how for one in test.candidates}
    assert len(silence.candidates) > 1
    for row in (test, silence):
        sure = [one.sure for one in row.candidates]
        assert sure == sorted(sure, reverse=True)
        assert NOTHING in {one.how for one in row.candidates}


def test_each_moment_of_a_run_is_in_one_window(made: Made) -> None:
    tables = made.of["fenced"]
    first, second, third = tables.windows
    assert (first.fault, second.fault, third.fault) == ("", "isolate", "pause")
    assert first.from_ns == tables.about.began_ns
    assert first.until_ns == second.from_ns
    assert second.until_ns == third.from_ns
    assert third.until_ns == tables.about.ended_ns + 1
    assert "broker lost: controller.lease_expired" in second.types
    assert second.failed == ("operation", "silence", "violation")
    assert (third.types, third.failed) == ((), ())


def test_every_event_of_a_process_is_counted(made: Made) -> None:
    for tables in made.of.values():
        counted = sum(row.count for row in tables.density)
        clients = [p for p in tables.processes if p.role == "client"]
        assert counted <= tables.about.events
        assert counted >= tables.about.events - sum(p.events for p in clients)
        assert all(0 <= row.bin < BINS for row in tables.density)
    sorts = {row.sort for row in made.of["fenced"].density}
    assert sorts == {"failed", "unknown", "refused", "other"}


def test_events_are_shown_in_their_own_words(
    made: Made, runs: Mapping[str, Path], promises: Promises
) -> None:
    history = list(read(RunFolder(runs["fenced"]), f.Codec(promises.kinds)))
    for row in made.of["fenced"].shown:
        event = history[row.position]
        assert (row.process, row.at_ns, row.kind) == (event.process, event.at_ns, event.kind)
        assert row.sentence == sentence(event)


@pytest.mark.parametrize("run", sorted(KINDS))
def test_tables_survive_parquet(made: Made, run: str) -> None:
    schema = schema_of(RunTables)
    table = pa.Table.from_pylist([to_builtins(made.of[run])], schema)
    (row,) = table.to_pylist()
    assert convert(row, RunTables) == made.of[run]


class Promoted(Struct, frozen=True, tag="acme.promoted"):
    """A watcher names the one server that has all the lamps."""

    node: str

    def authority(self) -> tuple[f.Authority, ...]:
        gained = f.Change.GAINED
        return (f.Authority("lamps", gained, holder=None, node=self.node, wide=True),)


class Stored(Struct, frozen=True, tag="acme.stored"):
    """A client was told that its lamp is on, or found it off."""

    on: bool


@final
class KeepsLamps(f.Rule[list[f.Event]]):
    """A rule that reads of clients alone, and states the server that it asked."""

    clause = "ACME-1"
    state = list[f.Event]

    @f.on(Stored)
    def _stored(self, state: list[f.Event], event: f.Event, body: Stored) -> f.Findings:
        if body.on:
            state.append(event)
            return ()
        server, proof = f.slot_scope("lamp-1"), tuple(one.ref for one in state)
        return (f.violated(event.ref, f.Evidence.CLIENT, "{server} lost", proof, server=server),)


def test_a_rule_that_reads_of_clients_alone_is_explained_by_the_loss_of_the_server_it_states(
    promises: Promises, tmp_path: Path
) -> None:
    """The fault that brought it about is over as the watcher tells of the loss."""
    h = HistoryBuilder("stranger")
    for number in (1, 2):
        h.add(f"lamp-{number}#1", f.NodeStarted(role="lamp", node_id=number))
    h.add("clients/watcher#1", Promoted("lamp 1"))
    h.add("clients/a#1", Stored(on=True))
    targets = ("lamp-1#1",)
    fault = f.FaultInjected(
        fault_id="pause-1", fault="pause", targets=targets, receipt=True, evidence=""
    )
    h.add("harness", fault)
    h.add("harness", f.FaultHealed(fault_id="pause-1", receipt=True, evidence=""))
    h.add("clients/watcher#1", Promoted("lamp 2"))
    h.add("clients/a#1", Stored(on=False))
    path = write(tmp_path, "stranger", ended(h))
    own = replace(promises, rules=(KeepsLamps(),), kinds=(*promises.kinds, Promoted, Stored))
    (failed,) = run_tables(RunSource("stranger", str(path)), own).failures
    assert (failed.how, failed.explained_type) == (LOST, "lamps gained: acme.promoted")
    assert failed.faults == ("pause-1",)
