"""The model of ZooKeeper, fact by fact; a test beside it compares it with the real server."""

from __future__ import annotations

import pytest

from fencepost_clusters.zookeeper.client.port import (
    Answer,
    Check,
    Checked,
    Children,
    Create,
    Created,
    Data,
    DataSet,
    Delete,
    Deleted,
    Done,
    Exists,
    Fired,
    Found,
    GetChildren,
    GetData,
    Multi,
    Reason,
    Refused,
    Request,
    SetData,
    Stat,
    Unsent,
    Watch,
    ZnodeChange,
    is_path,
)
from fencepost_clusters.zookeeper.simulation.tree import Tree, Watched

ONE, TWO = 1, 2
TIMEOUT_MS = 1000


@pytest.fixture
def tree() -> Tree:
    """Two sessions, which took the transactions 1 and 2."""
    made = Tree(tick_ms=500)
    for session in (ONE, TWO):
        made.begin(session, TIMEOUT_MS, 0)
    return made


def ask(tree: Tree, request: Request, session: int = ONE) -> Answer:
    return tree.request(session, request, 0)[0]


def fired(tree: Tree, request: Request, session: int = ONE) -> list[tuple[int, Fired]]:
    return [(one.session, one.fired) for one in tree.request(session, request, 0)[1]]


def stat(tree: Tree, path: str) -> Stat:
    found = ask(tree, Exists(path))
    assert isinstance(found, Found)
    assert found.stat is not None
    return found.stat


def refused(why: Reason) -> Refused:
    return Refused(why)


def test_a_new_node_has_the_transaction_that_made_it_three_times(tree: Tree) -> None:
    made = ask(tree, Create("/a", b"xyz"))
    assert isinstance(made, Created)
    assert made.path == "/a"
    assert made.stat is not None
    assert (made.stat.czxid, made.stat.mzxid, made.stat.pzxid) == (3, 3, 3)
    assert (made.stat.version, made.stat.cversion, made.stat.length) == (0, 0, 3)


def test_sessions_and_refused_writes_take_a_transaction_and_reads_none(tree: Tree) -> None:
    assert ask(tree, Delete("/missing")) == refused(Reason.NO_NODE)
    ask(tree, Exists("/"))
    assert tree.zxid == 3
    tree.end(TWO)
    assert tree.zxid == 4


def test_the_cversion_that_clients_see_counts_creations_and_deletions(tree: Tree) -> None:
    for request in (Create("/p"), Create("/p/a"), Create("/p/b"), Delete("/p/a")):
        ask(tree, request)
    seen = stat(tree, "/p")
    assert (seen.cversion, seen.children, seen.czxid, seen.pzxid) == (3, 1, 3, 6)


def test_a_sequential_name_ends_in_the_number_of_creations_in_its_parent(tree: Tree) -> None:
    for request in (Create("/p"), Create("/p/a"), Delete("/p/a")):
        ask(tree, request)
    made = ask(tree, Create("/p/n-", sequential=True))
    assert isinstance(made, Created)
    assert made.path == "/p/n-0000000001"


def test_checks_of_a_creation_have_an_order(tree: Tree) -> None:
    assert ask(tree, Create("/p/a")) == refused(Reason.NO_NODE)
    ask(tree, Create("/e", ephemeral=True))
    assert ask(tree, Create("/e")) == refused(Reason.NODE_EXISTS)
    assert ask(tree, Create("/e/a")) == refused(Reason.NO_CHILDREN_FOR_EPHEMERALS)


def test_checks_of_a_deletion_have_an_order(tree: Tree) -> None:
    ask(tree, Create("/p"))
    ask(tree, Create("/p/a"))
    assert ask(tree, Delete("/q", 7)) == refused(Reason.NO_NODE)
    assert ask(tree, Delete("/p", 7)) == refused(Reason.BAD_VERSION)
    assert ask(tree, Delete("/p", 0)) == refused(Reason.NOT_EMPTY)
    assert ask(tree, Delete("/p/a")) == Deleted()
    assert ask(tree, Delete("/p")) == Deleted()


def test_data_have_a_version_of_their_own(tree: Tree) -> None:
    ask(tree, Create("/p", b"0"))
    ask(tree, Create("/p/a"))
    first = ask(tree, SetData("/p", b"12", 0))
    assert isinstance(first, DataSet)
    assert (first.stat.version, first.stat.mzxid, first.stat.pzxid) == (1, 5, 4)
    assert ask(tree, SetData("/p", b"", 0)) == refused(Reason.BAD_VERSION)
    read = ask(tree, GetData("/p"))
    assert isinstance(read, Data)
    assert read.data == b"12"


def test_a_multi_is_one_transaction(tree: Tree) -> None:
    answer = ask(tree, Multi((Create("/p"), Create("/p/a"), Check("/p", 0), SetData("/p", b"x"))))
    assert isinstance(answer, Done)
    assert answer.results[:3] == (Created("/p", None), Created("/p/a", None), Checked())
    assert {stat(tree, path).czxid for path in ("/p", "/p/a")} == {3}


def test_a_multi_with_a_refused_write_changes_nothing(tree: Tree) -> None:
    ask(tree, Exists("/p", watch=True))
    writes = (Create("/p"), Check("/q"), Create("/r"))
    answer, events = tree.request(ONE, Multi(writes), 0)
    assert answer == Done(
        (refused(Reason.ROLLED_BACK), refused(Reason.NO_NODE), refused(Reason.AFTER_REFUSED))
    )
    assert not events
    assert ask(tree, Exists("/p")) == Found(None)
    assert tree.zxid == 3


def test_a_watch_fires_once_to_each_session_that_set_it(tree: Tree) -> None:
    for session in (ONE, TWO, TWO):
        ask(tree, Exists("/p", watch=True), session)
    made = Fired("/p", Watch.NODE, ZnodeChange.CREATED)
    assert fired(tree, Create("/p")) == [(ONE, made), (TWO, made)]
    assert fired(tree, Delete("/p")) == []


def test_a_read_of_a_missing_node_sets_no_watch(tree: Tree) -> None:
    assert ask(tree, GetData("/p", watch=True)) == refused(Reason.NO_NODE)
    assert ask(tree, GetChildren("/p", watch=True)) == refused(Reason.NO_NODE)
    assert fired(tree, Create("/p")) == []


def test_a_deletion_fires_both_watches_of_a_node_and_that_of_its_parent(tree: Tree) -> None:
    ask(tree, Create("/p"))
    for request in (GetData("/p", watch=True), GetChildren("/p", watch=True)):
        ask(tree, request, TWO)
    ask(tree, GetChildren("/", watch=True))
    assert fired(tree, Delete("/p")) == [
        (TWO, Fired("/p", Watch.NODE, ZnodeChange.DELETED)),
        (TWO, Fired("/p", Watch.CHILDREN, ZnodeChange.DELETED)),
        (ONE, Fired("/", Watch.CHILDREN, ZnodeChange.CHILDREN)),
    ]


def test_a_disconnection_drops_watches_and_keeps_ephemerals(tree: Tree) -> None:
    ask(tree, Create("/e", ephemeral=True))
    ask(tree, Exists("/e", watch=True))
    tree.disconnect(ONE)
    assert stat(tree, "/e").owner == ONE
    assert fired(tree, Delete("/e"), TWO) == []


def test_the_end_of_a_session_deletes_its_ephemerals_in_one_transaction(tree: Tree) -> None:
    for path in ("/p", "/p/a", "/p/b"):
        ask(tree, Create(path, ephemeral=path != "/p"))
    ask(tree, GetChildren("/p", watch=True), TWO)
    assert tree.end(ONE) == [Watched(TWO, Fired("/p", Watch.CHILDREN, ZnodeChange.CHILDREN))]
    found = ask(tree, GetChildren("/p"), TWO)
    assert isinstance(found, Children)
    assert found.names == ()
    assert (found.stat.pzxid, tree.zxid) == (6, 6)
    assert ask(tree, Create("/late")) == Unsent()


def test_a_session_ends_at_the_tick_after_its_timeout(tree: Tree) -> None:
    """As ExpiryQueue rounds: 100 + 1000 ms are over at 1500 ms, 500 + 1000 ms at 2000 ms."""
    tree.hear(ONE, 100)
    tree.hear(TWO, 500)
    assert tree.next_expiry_ms() == 1500
    tree.expire(1499)
    assert [*tree.sessions] == [ONE, TWO]
    tree.expire(1500)
    assert [*tree.sessions] == [TWO]
    assert not tree.hear(ONE, 1500)
    tree.expire(2000)
    assert [*tree.sessions] == []


def test_requests_are_signs_of_life(tree: Tree) -> None:
    tree.request(ONE, Exists("/"), 900)
    tree.expire(1500)
    assert [*tree.sessions] == [ONE]


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a/./b", "/..", "/a\0"])
def test_a_bad_path_is_refused_before_it_takes_a_transaction(tree: Tree, path: str) -> None:
    assert not is_path(path)
    assert ask(tree, Create(path)) == refused(Reason.BAD_ARGUMENTS)
    assert ask(tree, Multi((Create("/ok"), Delete(path)))) == refused(Reason.BAD_ARGUMENTS)
    assert ask(tree, Delete("/")) == refused(Reason.BAD_ARGUMENTS)
    assert tree.zxid == 2
