"""A simulated cluster in the hand: faults are injected, shown, and healed at their time or when
asked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from fencepost.model.clock import SECOND
from fencepost.model.runtime import let_pass_until
from fencepost.model.system.status import tables_of
from fencepost.plugins.manager import load
from fencepost.runs.by_hand.channel import Channel, ask, meeting_for, meeting_of
from fencepost.runs.by_hand.holding import HeldCluster
from fencepost.runs.by_hand.messages import (
    Answer,
    AskStatus,
    EndCluster,
    Ended,
    Healed,
    HealFaults,
    Injected,
    InjectFault,
    Refused,
    Status,
)
from fencepost.runs.run import Run, RunSpec, new_folder

END = Ended(folder="", page="", says=(), exit_code=0, reason="")


class Hand:
    """A cluster in the hand, and what it said by itself."""

    def __init__(self, run: Run, channel: Channel) -> None:
        self.run = run
        self.said: list[str] = []
        self.cluster = HeldCluster(run, channel, self.said.append)

    def hold_while(self, *requests: InjectFault | HealFaults | AskStatus) -> list[Answer | None]:
        """The answers to a second terminal that asks for these, one after the other, and then for
        the end."""
        answers: list[Answer | None] = []
        where = meeting_for(None)

        def second_terminal() -> None:
            answers.extend(ask(where, one) for one in (*requests, EndCluster()))

        terminal = Thread(target=second_terminal)
        terminal.start()
        self.cluster.hold().answer(END)
        terminal.join()
        assert answers.pop() == END
        return answers

    def status(self) -> Status:
        return self.cluster.status()

    def pass_s(self, seconds: float) -> None:
        runtime = self.run.runtime
        let_pass_until(runtime, runtime.now_ns() + int(seconds * SECOND))


@pytest.fixture
def hand(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hand]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("t")))
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated", seed=7)
    with Run.start(spec, plugins, new_folder(tmp_path, "cluster")) as run:
        run.clients.load()
        with Channel.open(meeting_of(run.folder.path)) as channel:
            yield Hand(run, channel)


def test_a_second_terminal_injects_sees_and_heals(hand: Hand) -> None:
    injected, status, healed, after = hand.hold_while(
        InjectFault(fault="isolate", words=("broker-1",)),
        AskStatus(),
        HealFaults(fault_id="isolate-1"),
        AskStatus(after_ms=200),
    )
    assert isinstance(injected, Injected)
    assert injected.fault.fault_id == "isolate-1"
    assert injected.fault.arguments == {"node": "broker-1"}
    assert isinstance(status, Status)
    assert [one.fault_id for one in status.faults] == ["isolate-1"]
    assert {one.name: one.faults for one in status.nodes}["broker-1"] == ("isolate",)
    assert isinstance(healed, Healed)
    assert [(one.fault_id, one.receipt) for one in healed.faults] == [("isolate-1", True)]
    assert isinstance(after, Status)
    assert (after.faults, after.up_ms >= status.up_ms + 200) == ((), True)


def test_a_fault_with_a_time_heals_by_itself(hand: Hand) -> None:
    hand.hold_while(InjectFault(fault="kill", words=("broker-1",), for_ms=300))
    dead = {one.name: one for one in hand.status().nodes}["broker-1"]
    assert (dead.process, dead.runs) == ("broker-1#1", False)
    assert hand.said == []
    hand.hold_while(AskStatus(after_ms=1000))
    (said,) = hand.said
    assert said.startswith("kill-1 is healed: broker-1#2")
    living = {one.name: one for one in hand.status().nodes}["broker-1"]
    assert (living.process, living.runs, hand.status().faults) == ("broker-1#2", True, ())


def test_a_fault_that_ends_by_itself_leaves_the_terminal_free(hand: Hand) -> None:
    """As in a test, it lasts for as long as it says; but nobody is kept waiting meanwhile."""
    (injected,) = hand.hold_while(InjectFault(fault="bounce", words=("broker-1", "60000")))
    assert isinstance(injected, Injected)
    assert injected.fault.heals_in_ms is not None
    assert 59_000 < injected.fault.heals_in_ms <= 60_000
    hand.pass_s(61)
    hand.hold_while(AskStatus(after_ms=200))
    assert hand.status().faults == ()


def test_a_target_is_named_by_its_role_of_this_moment(hand: Hand) -> None:
    hand.pass_s(5)
    (injected,) = hand.hold_while(InjectFault(fault="pause", words=("@active-controller",)))
    assert isinstance(injected, Injected)
    (target,) = injected.fault.targets
    tables = {one.title: one for one in hand.status().tables}
    (row,) = tables["controller"].rows
    assert row[2] == target


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InjectFault(fault="islate", words=("broker-1",)), 2),
        (InjectFault(fault="isolate", words=("broker-9",)), 2),
        (InjectFault(fault="isolate"), 2),
        (InjectFault(fault="isolate", words=("@leader/no-such/0",)), 2),
        (InjectFault(fault="isolate", words=("@ledaer",)), 2),
        (HealFaults(fault_id="isolate-3"), 2),
    ],
)
def test_what_does_not_fit_is_refused_and_the_cluster_goes_on(
    hand: Hand, request_: InjectFault | HealFaults, code: int
) -> None:
    refused, status = hand.hold_while(request_, AskStatus())
    assert isinstance(refused, Refused)
    assert refused.exit_code == code
    assert isinstance(status, Status)
    assert status.faults == ()


def test_all_is_healed_newest_first_and_nothing_twice(hand: Hand) -> None:
    _, _, healed, again = hand.hold_while(
        InjectFault(fault="isolate", words=("broker-1",)),
        InjectFault(fault="pause", words=("broker-2",)),
        HealFaults(),
        HealFaults(fault_id="isolate-1"),
    )
    assert isinstance(healed, Healed)
    assert [one.fault_id for one in healed.faults] == ["pause-2", "isolate-1"]
    assert again == Healed(faults=())


def test_faults_by_hand_are_in_the_schedule_and_judged(hand: Hand) -> None:
    hand.hold_while(InjectFault(fault="kill", words=("broker-1",), for_ms=100))
    hand.hold_while(AskStatus(after_ms=3000))
    result = hand.run.finish()
    assert (result.injected, result.missed, result.trouble) == (1, {}, None)
    assert '"fault": "kill"' in result.folder.schedule.read_text()


def test_a_system_without_tables_shows_who_holds_what(hand: Hand) -> None:
    hand.pass_s(3)
    runtime = hand.run.runtime
    (table,) = tables_of(object(), runtime.view, runtime.layout)
    assert (table.title, table.columns) == ("authority", ("over", "epoch", "held by"))
    assert {str(row[2]).partition("-")[0] for row in table.rows} >= {"controller", "broker"}
