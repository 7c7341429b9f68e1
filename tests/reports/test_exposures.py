"""What went before violations, in the windows of one run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from fencepost.reporting import AuthorityRow, FaultRow, Move
from fencepost_reports.one_run.exposures import exposures, transition_of
from fencepost_reports.one_run.tables import ExposureRow, FailureRow
from fencepost_reports.one_run.windows import windows

LOSS = AuthorityRow(
    position=0,
    at_ns=0,
    process="controller-1#1",
    node_seq=0,
    kind="metadata.partition",
    type="partition gained: metadata.partition",
    scope="partition orders-0",
    change="gained",
    effect=Move.TAKES,
    epoch=2,
    was=1,
    holder="",
    node="broker 2",
    former="",
    former_node="broker 1",
    wide=False,
)


def lost(at_ns: int) -> AuthorityRow:
    return structs.replace(LOSS, at_ns=at_ns)


def fault(name: str, from_ns: int, to_ns: int) -> FaultRow:
    return FaultRow(
        fault_id=name,
        fault=name,
        targets=(),
        receipt=True,
        evidence="",
        from_ns=from_ns,
        to_ns=to_ns,
        healed=True,
        heal_receipt=True,
    )


def violated(clause: str, at_ns: int) -> FailureRow:
    return FailureRow(
        id=clause,
        what="violation",
        clause=clause,
        evidence="peer",
        outcome="violated",
        says="",
        subject="",
        process="broker-1#1",
        position=0,
        node_seq=0,
        began_ns=at_ns,
        at_ns=at_ns,
        count=1,
        faults=(),
        explained_by=-1,
        explained_type="",
        explained_at_ns=-1,
        how="",
        candidates=(),
        lines=(),
    )


def found(
    faults: Sequence[FaultRow], authority: Sequence[AuthorityRow], failed: Sequence[FailureRow]
) -> dict[tuple[str, str, str], tuple[int, dict[str, int]]]:
    cut = windows(faults, authority, failed, 0, 100)
    rows: Sequence[ExposureRow] = exposures(cut, faults, authority, failed)
    return {
        (row.sort, row.name, row.other): (row.occurred, {n.name: n.count for n in row.followed})
        for row in rows
    }


def test_every_window_counts_for_the_base_rate() -> None:
    rows = found([fault("cut", 10, 20), fault("pause", 50, 60)], [], [violated("A", 55)])
    assert rows["any", "", ""] == (3, {"A": 1})


def test_a_violation_counts_for_what_went_before_it_in_its_window() -> None:
    authority = [lost(15), lost(55)]
    rows = found(
        [fault("cut", 10, 20), fault("pause", 50, 60)],
        authority,
        [violated("A", 15), violated("B", 51)],
    )
    assert rows["loss", LOSS.type, ""] == (2, {"A": 1})
    assert rows["fault", "cut", ""] == (1, {"A": 1})
    assert rows["fault", "pause", ""] == (1, {"B": 1})


def test_two_faults_are_a_pair_where_one_is_injected_while_the_other_is_active() -> None:
    rows = found(
        [fault("pause", 10, 60), fault("cut", 50, 60), fault("kill", 70, 80)],
        [],
        [violated("A", 65)],
    )
    pairs = {key[1:]: value for key, value in rows.items() if key[0] == "two faults"}
    assert pairs == {("cut", "pause"): (1, {"A": 1})}


def test_a_transition_says_whether_the_holder_changed_and_how_far_the_epoch_went() -> None:
    assert transition_of(LOSS) == "partition: to another holder, one epoch on"
    same = structs.replace(LOSS, epoch=1)
    assert transition_of(same) == "partition: to another holder, in the same epoch"
    assert (
        transition_of(structs.replace(LOSS, epoch=7)) == "partition: to another holder, epochs on"
    )
    renewed = structs.replace(LOSS, effect=Move.RENEWS)
    assert transition_of(renewed) == "partition: to the same holder, one epoch on"
    assert transition_of(structs.replace(LOSS, change="lost")) == "partition: to no holder"
    assert transition_of(structs.replace(LOSS, effect=Move.GIVES)) == ""
