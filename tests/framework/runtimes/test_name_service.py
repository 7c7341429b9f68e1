"""Programs that know each other by the names of slots."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests import echo_node

from fencepost import Command, EnvironmentFailed, Place, Shape
from fencepost.runtimes.process.name_service import is_installed, resolving

HOSTS = {"broker-1": "127.9.2.2", "broker-2": "127.9.2.3"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    layout = echo_node.EchoSystem().layout(Shape())
    return Place(
        run="run", process="broker-1#1", slot=layout.slot("broker-1"), layout=layout,
        address="127.9.2.2", hosts=HOSTS, advertised="127.9.9.2", data_dir=tmp_path / "data",
        work_dir=tmp_path, events_path=tmp_path / "events",
    )  # fmt: skip


def test_a_command_that_asks_for_no_names_stays_as_it_is(place: Place) -> None:
    command = Command(("server",), {"A": "b"}, preload=True)
    assert resolving(command, place, lambda: False) is command


def test_a_program_gets_a_hosts_file_and_the_library_that_reads_it(place: Place) -> None:
    command = Command(("server",), {"LD_PRELOAD": "libother.so"}, preload=True, hosts=True)
    made = resolving(command, place, lambda: True)
    assert made.files == {"hosts": "127.9.2.2 broker-1\n127.9.2.3 broker-2\n127.0.0.1 localhost\n"}
    assert made.environment == {
        "LD_PRELOAD": "libother.so:libnss_wrapper.so",
        "NSS_WRAPPER_HOSTS": str(place.work_dir / "hosts"),
        "JAVA_TOOL_OPTIONS": "-Djdk.net.hosts.file=hosts",
    }
    assert not made.preload


def test_a_library_that_is_missing_is_named_and_java_needs_none(place: Place) -> None:
    with pytest.raises(EnvironmentFailed, match=r"broker-1#1 .* by libnss_wrapper\.so, which is n"):
        resolving(Command(("server",), hosts=True), place, lambda: False)
    made = resolving(Command(("/jdk/bin/java", "Main"), hosts=True), place, lambda: False)
    assert made.environment == {"JAVA_TOOL_OPTIONS": "-Djdk.net.hosts.file=hosts"}


def test_a_container_has_the_names_already(place: Place) -> None:
    command = Command(("server",), hosts=True)
    made = resolving(command, replace(place, image="an image"), lambda: False)
    assert made.environment == {}
    assert made.files.keys() == {"hosts"}


@pytest.mark.tool
def test_a_real_program_resolves_the_names(place: Place) -> None:
    if not is_installed():
        pytest.skip("libnss_wrapper is not installed")
    code = "import socket; print(*{at[4][0] for at in socket.getaddrinfo('broker-2', 80)})"
    command = resolving(Command((sys.executable, "-c", code), hosts=True), place)
    for name, text in command.files.items():
        (place.work_dir / name).write_text(text)
    said = subprocess.run(
        command.argv, cwd=place.work_dir, env={**os.environ, **command.environment},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said == "127.9.2.3\n"
