"""The changes that take authority, and the states of processes, in any system."""

from __future__ import annotations

from collections.abc import Sequence

from folded_tables import folded
from msgspec import Struct

import fencepost as f
import fencepost_kafka as k
from fencepost.reporting import Move, Tables
from fencepost.testing import HistoryBuilder
from fencepost_clusters.etcd.events.members import BecameLeader, StoppedLeading


class Held(Struct, frozen=True, tag="acme.held"):
    """A process gained, or lost, the key to a door."""

    door: str
    epoch: int
    change: str = "gained"
    holder: str = ""
    node: str = ""
    state: str = ""
    matter: str = ""
    wide: bool = False

    def authority(self) -> Sequence[f.Authority]:
        holder = None if self.node else self.holder
        state = "inside" if self.change == "gained" and not self.node else self.state
        change = f.Change(self.change)
        return (
            f.Authority(
                scope=f"door {self.door}",
                change=change,
                epoch=self.epoch,
                holder=holder,
                node=self.node,
                state=state,
                matter=self.matter,
                wide=self.wide,
            ),
        )


END_NS = 10**12


def made(*written: tuple[str, Struct]) -> Tables:
    history = HistoryBuilder("doors")
    for process, body in written:
        history.add(process, body)
    return folded(history.events(), END_NS)


def effects(*written: tuple[str, Struct]) -> list[Move]:
    return [row.effect for row in made(*written).authority]


def test_the_first_holder_takes_nothing_and_another_one_does() -> None:
    assert effects(("a", Held("x", 1)), ("b", Held("x", 2)), ("c", Held("y", 1))) == [
        Move.GIVES,
        Move.TAKES,
        Move.GIVES,
    ]


def test_the_same_holder_renews_in_a_new_epoch_and_regains_in_the_same() -> None:
    assert effects(("a", Held("x", 1)), ("a", Held("x", 2)), ("a", Held("x", 2))) == [
        Move.GIVES,
        Move.RENEWS,
        Move.GIVES,
    ]


def test_two_processes_of_one_epoch_cannot_both_hold() -> None:
    assert effects(("a", Held("x", 1)), ("b", Held("x", 1))) == [Move.GIVES, Move.TAKES]


def test_a_loss_takes_only_from_the_holder_and_only_in_its_epoch() -> None:
    rows = (
        ("a", Held("x", 1, "lost")),
        ("a", Held("x", 2)),
        ("b", Held("x", 3)),
        ("a", Held("x", 2, "lost")),
        ("a", Held("x", 3, "lost")),
        ("b", Held("x", 3, "lost")),
    )
    assert effects(*rows) == [
        Move.NOTES,
        Move.GIVES,
        Move.TAKES,
        Move.NOTES,
        Move.NOTES,
        Move.TAKES,
    ]


def test_a_node_and_its_process_are_one_holder() -> None:
    started = f.NodeStarted(role="guard", node_id=7)
    rows = (
        ("guard-7#1", started),
        ("book", Held("x", 1, node="guard 7")),
        ("guard-7#1", Held("x", 1)),
        ("book", Held("x", 2, node="guard 7")),
        ("book", Held("x", 3, node="guard 8")),
    )
    assert effects(*rows) == [Move.GIVES, Move.GIVES, Move.RENEWS, Move.TAKES]


def test_an_unknown_holder_of_a_newer_epoch_is_taken_for_another_one() -> None:
    rows = (("a", Held("x", 1)), ("book", Held("x", 2, holder="", node="?")))
    tables = made(*rows)
    assert [row.effect for row in tables.authority] == [Move.GIVES, Move.TAKES]
    assert [row.position for row in tables.authority if row.effect is Move.TAKES] == [1]


def test_states_end_with_their_process() -> None:
    tables = made(
        ("a#1", Held("x", 1)),
        ("harness", f.ProcessExited(ended="a#1", exit_code=0, signal=9, expected=True)),
    )
    (span,) = tables.spans
    assert (span.state, span.scope, span.held) == ("inside", "door x", True)
    assert span.to_ns < END_NS


def test_a_third_party_gives_a_band_to_the_process_of_a_node_and_takes_it_by_the_next() -> None:
    tables = made(
        ("guard-7#1", f.NodeStarted(role="guard", node_id=7)),
        ("guard-8#1", f.NodeStarted(role="guard", node_id=8)),
        ("book", Held("x", 1, node="guard 7", state="inside")),
        ("book", Held("x", 2, node="guard 8", state="inside")),
    )
    seven, eight = tables.spans
    assert (seven.process, seven.state, seven.held) == ("guard-7#1", "inside", True)
    assert eight.process == "guard-8#1"
    assert seven.to_ns == eight.from_ns


def test_a_third_party_that_tells_of_a_former_epoch_gives_no_band() -> None:
    """It began anew, and knew the holder of before."""
    tables = made(
        ("guard-7#1", f.NodeStarted(role="guard", node_id=7)),
        ("guard-8#1", f.NodeStarted(role="guard", node_id=8)),
        ("book", Held("x", 1, node="guard 7", state="inside")),
        ("book", Held("x", 2, node="guard 8", state="inside")),
        ("old book", Held("x", 1, node="guard 7", state="inside")),
    )
    assert [(span.process, span.epoch) for span in tables.spans] == [
        ("guard-7#1", 1),
        ("guard-8#1", 2),
    ]
    assert tables.spans[1].to_ns == END_NS


def test_a_process_that_says_itself_that_it_holds_keeps_its_band_beside_a_reported_one() -> None:
    """Two that hold one thing at once: the one does not know of the other."""
    tables = made(
        ("guard-7#1", f.NodeStarted(role="guard", node_id=7)),
        ("guard-8#1", f.NodeStarted(role="guard", node_id=8)),
        ("guard-7#1", Held("x", 1)),
        ("book", Held("x", 2, node="guard 8", state="inside")),
    )
    assert [span.to_ns for span in tables.spans] == [END_NS, END_NS]


def test_a_state_that_a_process_noted_has_authority_by_the_word_of_a_third_party() -> None:
    """A redis says that it is a master, and knows no epoch; sentinels do. Deposed, it takes itself
    for one still: until it says otherwise its band goes on, without authority."""
    noted = Held("x", -1, change="noted", state="inside")
    tables = made(
        ("guard-7#1", f.NodeStarted(role="guard", node_id=7)),
        ("guard-8#1", f.NodeStarted(role="guard", node_id=8)),
        ("guard-7#1", noted),
        ("book", Held("x", 1, node="guard 7", state="inside")),
        ("guard-7#1", noted),
        ("guard-8#1", noted),
        ("book", Held("x", 2, node="guard 8", state="inside")),
        ("guard-7#1", Held("x", -1, change="lost", state="outside")),
    )
    spans = [(s.process[6:7], s.state, s.epoch, s.held) for s in tables.spans]
    assert sorted(one for one in spans if one[0] == "7") == [
        ("7", "inside", -1, False),
        ("7", "inside", -1, False),
        ("7", "inside", 1, True),
        ("7", "outside", -1, False),
    ]
    assert [one for one in spans if one[0] == "8"] == [
        ("8", "inside", -1, False),
        ("8", "inside", 2, True),
    ]


def test_every_state_over_what_the_whole_cluster_depends_on_is_drawn() -> None:
    """The timeline hid what a process was before it held such a scope, once it had held it."""
    tables = made(
        ("guard-7#1", f.NodeStarted(role="guard", node_id=7)),
        ("guard-7#1", Held("x", -1, change="noted", state="outside")),
        ("guard-7#1", Held("x", 1, state="inside", wide=True)),
    )
    assert [(s.state, s.own) for s in tables.spans] == [("outside", True), ("inside", True)]


def test_leaders_of_etcd_have_bands_of_their_own() -> None:
    tables = made(
        ("etcd-1#1", f.NodeStarted(role="member", node_id=1)),
        ("etcd-1#1", BecameLeader(member="1", term=2)),
        ("etcd-1#1", StoppedLeading(member="1", term=3, reason="higher-term")),
        ("etcd-2#1", BecameLeader(member="2", term=3)),
    )
    spans = tables.spans
    assert [(s.process, s.state, s.epoch, s.held, s.own) for s in spans] == [
        ("etcd-1#1", "leader", 2, True, True),
        ("etcd-1#1", "follower", 3, False, True),
        ("etcd-2#1", "leader", 3, True, True),
    ]


def absent(reason: str) -> k.BrokerDeclared:
    """A controller declares that broker 1 has no registration."""
    return k.BrokerDeclared(
        broker_id=1,
        incarnation_id=-1,
        old="Absent",
        new="Absent",
        reason=reason,  # type: ignore[arg-type]
        version=-1,
        silent_ms=0,
        timeout_ms=2_000,
        controller_epoch=2,
    )


def test_what_a_new_controller_finds_absent_loses_what_it_had() -> None:
    registered = k.BrokerRegistered(
        broker_id=1, broker_epoch=36, session=1, version=5, overwrote=False
    )
    elected = absent("controller_elected")
    known = effects(("broker-1#1", registered), ("broker-2#1", elected))
    assert known == [Move.GIVES, Move.TAKES]
    assert effects(("broker-2#1", elected)) == [Move.NOTES]
    assert effects(("broker-1#1", registered), ("broker-2#1", absent("gone")))[1] is Move.NOTES


def test_the_record_of_a_registration_takes_nothing_that_was_given_in_its_epoch() -> None:
    """It fences the broker that it registers, whose answer came first. Taken for a loss, it was the
    cause of what that broker's controller did next."""

    def granted(epoch: int) -> tuple[str, k.LeaseGranted]:
        body = k.LeaseGranted(
            broker_id=1,
            broker_epoch=epoch,
            next_state="FENCED",
            lease_start_ms=0,
            lease_end_ms=1,
            ends_at_ns=1,
            controller_epoch=1,
        )
        return "broker-1#1", body

    def fenced(offset: int) -> tuple[str, k.BrokerCommitted]:
        record = k.BrokerCommitted(
            offset=offset, broker_id=1, broker_epoch=5, fenced=True, incarnation="a"
        )
        return "controller-1#1", record

    assert effects(granted(5), fenced(5)) == [Move.GIVES, Move.NOTES]
    assert effects(granted(5), fenced(6)) == [Move.GIVES, Move.TAKES]
    # It does take the id from a process that had it in an epoch before.
    assert effects(granted(3), fenced(5)) == [Move.GIVES, Move.TAKES]


def test_what_repeats_is_one_row() -> None:
    """A record that each broker replays, and a lease that is renewed."""
    record = k.BrokerCommitted(offset=1, broker_id=1, broker_epoch=5, fenced=False, incarnation="a")
    assert effects(("broker-1#1", record), ("broker-2#1", record)) == [Move.GIVES]
    renewed = ("a", Held("x", 1, matter="renewal"))
    assert effects(renewed, renewed, ("a", Held("x", 1)), renewed) == [Move.GIVES] * 3
    assert effects(renewed, ("b", Held("x", 1, matter="renewal"))) == [Move.GIVES, Move.TAKES]
