"""Which process holds an authority, by its own word or by that of a third party."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import Struct

from fencepost import Authority, Change, Holders, NodeStarted, ProcessExited, ProcessSpawned, View
from fencepost.testing import HistoryBuilder


class Promoted(Struct, frozen=True, tag="acme.promoted"):
    """A watcher reports which server is the master now, or is none any more."""

    node: str
    epoch: int = -1
    change: str = "gained"

    def authority(self) -> Sequence[Authority]:
        return (Authority("master", Change(self.change), self.epoch, holder=None, node=self.node),)


class Leads(Struct, frozen=True, tag="acme.leads"):
    """A server says itself that it is the master, or is none any more."""

    epoch: int
    change: str = "gained"

    def authority(self) -> Sequence[Authority]:
        return (Authority("master", Change(self.change), self.epoch),)


def started(process: str, node_id: int) -> Sequence[tuple[str, Struct]]:
    spawned = ProcessSpawned(
        started=process, slot=process.partition("#")[0], role="server", node_id=node_id, pid=1
    )
    return (
        ("harness", spawned),
        (process, NodeStarted(role="server", node_id=node_id)),
    )


def ended(process: str) -> tuple[str, Struct]:
    return "harness", ProcessExited(ended=process, exit_code=0, signal=9, expected=True)


def holder(*written: tuple[str, Struct]) -> str:
    """The holder after two servers have started, and this was written."""
    history = HistoryBuilder()
    for process, body in (*started("server-1#1", 1), *started("server-2#1", 2), *written):
        history.add(process, body)
    view = View()
    for event in history.events():
        view.apply(event)
    return view.of(Holders).of.get("master", (-1, ""))[1]


def test_a_third_party_names_a_holder_by_its_node() -> None:
    assert holder(("watch-1#1", Promoted("server 1"))) == "server-1#1"
    assert holder(("watch-1#1", Promoted("server 1")), ("watch-2#1", Promoted("server 2"))) == (
        "server-2#1"
    )
    lost = Promoted("server 1", change="lost")
    assert holder(("watch-1#1", Promoted("server 1")), ("watch-1#1", lost)) == ""


@pytest.mark.parametrize("node", ["server 3", "guard 1", "server", ""])
def test_a_node_that_no_process_has_named_itself_holds_nothing(node: str) -> None:
    assert holder(("watch-1#1", Promoted(node))) == ""


def test_of_two_processes_with_one_id_none_is_meant_until_one_has_ended() -> None:
    twice = started("server-1-duplicate#1", 1)
    assert holder(*twice, ("watch-1#1", Promoted("server 1"))) == ""
    both = (*twice, ended("server-1#1"), ("watch-1#1", Promoted("server 1")))
    assert holder(*both) == "server-1-duplicate#1"


def test_a_late_report_of_an_epoch_that_is_known_gives_nothing_back() -> None:
    lost = (("server-1#1", Leads(5)), ("server-1#1", Leads(5, "lost")))
    assert holder(*lost, ("watch-1#1", Promoted("server 1", 5))) == ""
    assert holder(*lost, ("watch-1#1", Promoted("server 1", 6))) == "server-1#1"


def test_a_server_that_does_not_know_its_epoch_is_the_holder_by_its_newest_word() -> None:
    """Another one reports epochs. A second process with the id of the master says that it is one,
    too: the fault that started it has to know, when it heals."""
    reported = ("watch-1#1", Promoted("server 1", 3))
    assert holder(reported, ("server-2#1", Leads(-1))) == "server-2#1"
    late = ("watch-2#1", Promoted("server 1", 3))
    assert holder(reported, ("server-2#1", Leads(-1)), late) == "server-2#1"
    again = ("watch-2#1", Promoted("server 1", 4))
    assert holder(reported, ("server-2#1", Leads(-1)), again) == "server-1#1"
    assert holder(reported, ("server-2#1", Leads(2))) == "server-1#1"
