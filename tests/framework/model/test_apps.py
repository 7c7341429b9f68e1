"""Programs of the user's own: their slots and links, what may be wrong with them, their secrets."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from fencepost import CLIENT, Layout, Link, Program, Ready, Shape, Slot, UsageError
from fencepost.model.secrets import REDACTED, masked
from fencepost.model.system.apps import (
    bootstrap_of,
    check_program,
    filled,
    own_port,
    secrets_of,
    with_apps,
)
from fencepost.supervision.addresses import check_layout

TOLD = (9092,)
SERVERS = (Slot("server-1", "server", 1, 1), Slot("server-2", "server", 2, 2))
CLIENTS = Slot("clients", CLIENT, -1, 4)
LAYOUT = Layout(
    (*SERVERS, CLIENTS),
    (
        Link("server-1", "server-2", 9094),
        *(Link("clients", one.name, port) for one, port in product(SERVERS, (9092, 2181))),
    ),
    bootstrap=(("server-1", 9092), ("server-2", 9092)),
    framed=frozenset({9092, 9094}),
)
APPS = {"billing": 2, "mail": 1}
PROGRAM = Program(name="billing", argv=("billing",))


def test_each_instance_has_a_slot_and_a_link_wherever_clients_have_one() -> None:
    layout = with_apps(LAYOUT, APPS, TOLD)
    check_layout(layout)
    instances = layout.instances()
    assert [slot.name for slot in instances] == ["billing-1", "billing-2", "mail-1"]
    assert [slot.index for slot in instances] == [3, 5, 6]
    assert layout.of(CLIENT) == (CLIENTS, *instances)
    assert layout.nodes() == SERVERS
    for slot in instances:
        own = own_port(slot, 9092, TOLD)
        links = {(one.target, one.port) for one in layout.links if one.source == slot.name}
        assert links == {*product(("server-1", "server-2"), (own, 2181))}
        assert bootstrap_of(layout, slot, TOLD) == [("server-1", own), ("server-2", own)]
        assert own in layout.framed
    assert len({own_port(slot, 9092, TOLD) for slot in layout.of(CLIENT)}) == 4


def test_where_nodes_tell_no_address_all_clients_use_one_port() -> None:
    layout = with_apps(LAYOUT, APPS)
    assert bootstrap_of(layout, layout.slot("mail-1"), ()) == list(LAYOUT.bootstrap)
    assert layout.framed == LAYOUT.framed


def test_without_apps_a_layout_is_as_it_was() -> None:
    assert with_apps(LAYOUT, {}, TOLD) is LAYOUT


@pytest.mark.parametrize(
    ("apps", "says"),
    [
        ({"Billing": 1}, "not lower-case words"),
        ({"billing": 0}, "1 to 50 instances, not 0"),
        ({"billing": 51}, "1 to 50 instances, not 51"),
        ({"server": 1}, "two slots would be named server-1"),
        ({"billing": 2, "billing-1": 1, "billing-1-1": 1}, ""),
    ],
)
def test_a_wrong_app_is_refused_in_a_sentence(apps: dict[str, int], says: str) -> None:
    if not says:
        assert len(with_apps(LAYOUT, apps).instances()) == 4
        return
    with pytest.raises(UsageError, match=says):
        with_apps(LAYOUT, apps)


def test_a_system_without_clients_has_no_apps() -> None:
    with pytest.raises(UsageError, match="no slot for clients"):
        with_apps(Layout(SERVERS, ()), APPS)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (replace(PROGRAM, argv=()), "its argv is empty"),
        (replace(PROGRAM, argv=("a\0b",)), "NUL"),
        (replace(PROGRAM, files={"../up": ""}), "not below its folder"),
        (replace(PROGRAM, files={"/etc/passwd": ""}), "not below its folder"),
        (replace(PROGRAM, secrets=("DB",)), "no variable of its own"),
        (replace(PROGRAM, ready=Ready()), "one of line, port and url"),
        (replace(PROGRAM, ready=Ready(line="up", port=80)), "one of line, port and url"),
        (replace(PROGRAM, ready_ms=0), "below one millisecond"),
        (replace(PROGRAM, works_again_ms=10), "asked at a port or a url"),
        (replace(PROGRAM, works_again_ms=10, ready=Ready(line="up")), "asked at a port or a url"),
    ],
)
def test_a_program_that_cannot_be_started_is_refused(wrong: Program, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_program(wrong)


def test_words_in_braces_are_filled_in_and_other_braces_stay() -> None:
    words = {"bootstrap": "a:1,b:2", "instance": "2"}
    text = '{"servers": "{bootstrap}", "id": {instance}, "other": {unknown}, "work": "{work}"}'
    assert filled(text, words) == (
        '{"servers": "a:1,b:2", "id": 2, "other": {unknown}, "work": "{work}"}'
    )


def test_secrets_are_known_by_their_names_and_masked_longest_first() -> None:
    program = Program(
        name="app",
        argv=("app", "--token=abc", "--db-password", "abcdef", "--verbose", "--secret", "--flag"),
        environment={"PIN": "1234", "DB_PASSWORD": "hunter2", "MODE": "fast", "API_TOKEN": ""},
        secrets=("PIN",),
    )
    assert secrets_of(program) == {"abc", "abcdef", "1234", "hunter2"}
    said = masked("abcdef abc 1234 fast", secrets_of(program))
    assert said == f"{REDACTED} {REDACTED} {REDACTED} fast"


def test_a_shape_takes_from_another_the_apps_that_it_leaves_open() -> None:
    shape = Shape(apps={"billing": 3}).over(Shape(apps=APPS))
    assert shape.apps == {"billing": 3, "mail": 1}
