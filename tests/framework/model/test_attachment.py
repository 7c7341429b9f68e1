"""The file of a cluster that runs already: what it says, and which faults that allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.commands.attach import faults_of
from fencepost.model.errors import UsageError
from fencepost.model.faults.handles import Handle
from fencepost.model.runtime import Signal
from fencepost.model.system.attachment import (
    Attachment,
    attachment_in,
    check_consent,
    decoded,
    laid_out,
    seen,
)
from fencepost.model.system.topology import Link
from fencepost.plugins.manager import load

HEAD = """
may_break = true
bootstrap = ["127.0.0.1:29092"]
[toxiproxy]
url = "http://127.0.0.1:8474"
"""
NODES = """
[[node]]
name = "broker-1"
id = 1
roles = ["broker", "controller"]
address = "127.0.0.1:19092"
pid_file = "run/1"
start = ["bin/start", "1"]
[[node]]
name = "broker-2"
id = 2
address = "127.0.0.1:19093"
pid = 22
"""
LINK = """
[[link]]
from = "clients"
to = "broker-1"
proxy = "first"
listen = "127.0.0.1:29092"
"""
PEERS = """
[[link]]
from = "broker-1"
to = "broker-2"
proxy = "peers"
listen = "127.0.0.1:29200"
"""
WHOLE = HEAD + NODES + LINK


def lacking(attachment: Attachment) -> set[Handle]:
    return set(attachment.lacks)


ALWAYS = {Handle.DISK, Handle.SECOND, Handle.FRAMES, Handle.POWER}


def test_the_layout_is_that_of_the_file() -> None:
    attachment = decoded(WHOLE.encode())
    layout = laid_out(attachment, "broker")
    assert [(slot.name, slot.role, slot.node_id) for slot in layout.slots] == [
        ("broker-1", "broker", 1), ("broker-2", "broker", 2), ("clients", "client", -1),
    ]  # fmt: skip
    assert layout.slot("broker-1").id_as("controller") == 1
    assert layout.links == (Link("clients", "broker-1", 29092),)
    assert layout.bootstrap == (("broker-1", 29092),)
    assert seen(attachment, "clients", "broker-1") == ("127.0.0.1", 29092)
    assert seen(attachment, "clients", "broker-2") == ("127.0.0.1", 19093)


def test_handles_decide_which_faults_exist() -> None:
    plugins = load()

    def exist(text: str) -> set[str]:
        found = faults_of(plugins.faults, decoded(text.encode()))
        return {one.name for one in found if not one.why_not}

    links = {"cut", "partition", "slow_link"}
    processes, starts = {"pause"}, {"kill", "terminate", "bounce"}
    among = {
        *("isolate", "isolate_role", "cut_from_role", "cut_from_controllers"),
        *("halves", "bridge", "majorities_ring"),
    }
    assert exist(WHOLE) == links | processes | starts
    assert exist(WHOLE + PEERS) == links | processes | starts | among
    assert exist(WHOLE.replace('start = ["bin/start", "1"]', "")) == links | processes
    bare = WHOLE.replace('start = ["bin/start", "1"]', "").replace('pid_file = "run/1"', "")
    assert exist(bare.replace("pid = 22", "")) == links
    unlinked = (HEAD + NODES).replace("127.0.0.1:29092", "127.0.0.1:19092")
    assert exist(unlinked) == processes | starts


def test_lacks_name_what_the_file_would_need() -> None:
    assert lacking(decoded((WHOLE + PEERS).encode())) == ALWAYS
    assert lacking(decoded(WHOLE.encode())) == ALWAYS | {Handle.PEERS}


def test_a_signal_that_a_node_would_not_come_back_from_is_refused() -> None:
    attachment = decoded(WHOLE.encode())
    attachment.check_signal("broker-1", Signal.KILL)
    attachment.check_signal("broker-2", Signal.STOP)
    attachment.check_signal("clients/producer", Signal.KILL)
    with pytest.raises(UsageError, match="broker-2 gets no SIGKILL: nothing starts it again"):
        attachment.check_signal("broker-2", Signal.KILL)
    unnamed = decoded(WHOLE.replace("pid = 22", "").encode())
    with pytest.raises(UsageError, match="broker-2 gets no signal"):
        unnamed.check_signal("broker-2", Signal.STOP)


def test_nodes_without_a_proxy_between_them_are_not_parted() -> None:
    attachment = decoded((WHOLE + PEERS).encode())
    attachment.check_links([("broker-2", "broker-1"), ("broker-1", "clients")])
    with pytest.raises(UsageError, match="no proxy lies between clients and broker-2"):
        attachment.check_links([("clients", "broker-2")])


def test_a_container_starts_again_by_its_engine() -> None:
    text = WHOLE.replace("pid = 22", 'container = "kafka-2"')
    decoded(text.encode()).check_signal("broker-2", Signal.KILL)
    assert decoded(text.encode()).named["broker-2"].in_utc
    assert not decoded(text.encode()).named["broker-1"].in_utc


def test_nothing_is_touched_without_consent() -> None:
    check_consent(decoded(WHOLE.encode()))
    for text in ("may_break = false", ""):
        with pytest.raises(UsageError, match="nothing was touched"):
            check_consent(decoded(WHOLE.replace("may_break = true", text).encode()))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("may_break = maybe", "Invalid value"),
        (WHOLE.replace("pid_file", "pidfile"), "unknown field `pidfile`"),
        (WHOLE.replace("id = 1", 'id = "1"'), "Expected `int`, got `str`"),
        (HEAD, "names no node"),
        (WHOLE.replace('"broker-2"', '"broker-1"'), "two nodes have the name broker-1"),
        (WHOLE.replace("id = 2\n", "id = 1\n"), "two nodes have the id 1"),
        (WHOLE.replace("broker-2", "Broker 2"), "is not lower-case words"),
        (WHOLE.replace("pid = 22", 'pid = 22\ncontainer = "c"'), "not several"),
        (WHOLE.replace("pid = 22", 'start = ["x"]'), "neither a pid nor a pid_file"),
        (WHOLE.replace("127.0.0.1:19093", "127.0.0.1"), "is no address: write host:port"),
        (WHOLE.replace('to = "broker-1"', 'to = "broker-11"'), "did you mean 'broker-1'"),
        (WHOLE.replace('to = "broker-1"', 'to = "clients"'), "joins no two nodes"),
        (WHOLE + LINK, "the proxy first is in two links"),
        (WHOLE.replace('"first"', '"a/b"'), "whose name has a slash"),
        (WHOLE.replace("http://127.0.0.1:8474", "127.0.0.1:8474"), "write http://host:port"),
        (WHOLE.replace('["127.0.0.1:29092"]', "[]"), "names no bootstrap address"),
        (WHOLE.replace('["127.0.0.1:29092"]', '["127.0.0.1:1"]'), "is neither where a link"),
        (WHOLE.replace('[toxiproxy]\nurl = "http://127.0.0.1:8474"', ""), "and no toxiproxy"),
    ],
)
def test_bad_input_gets_one_sentence(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        decoded(text.encode())
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_paths_are_from_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(WHOLE)
    found = attachment_in(tmp_path / "cluster.toml")
    assert found.named["broker-1"].pid_file == str(tmp_path / "run/1")
    with pytest.raises(UsageError, match=r"none\.toml cannot be read"):
        attachment_in(tmp_path / "none.toml")
