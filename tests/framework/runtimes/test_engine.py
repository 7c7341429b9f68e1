"""The container engine: where it is searched for, the errors without one, and the owners of
leftovers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import docker
import pytest
from tests import docker_bench

from fencepost import EnvironmentFailed
from fencepost.model.clock import poll
from fencepost.runtimes.docker.engine import (
    Leftover,
    check_client,
    connect,
    is_gone,
    open_client,
    owner,
    places,
)

FENCEPOST = str(Path(sys.executable).with_name("fencepost"))
OWNER = Path(__file__).parents[2] / "deaths" / "docker_owner.py"


def nowhere(tmp_path: Path) -> Mapping[str, str]:
    return {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/nowhere.sock"}


@pytest.mark.parametrize(
    ("variable", "named", "says"),
    [
        ("DOCKER_HOST", "unix:///nowhere.sock", "no such socket"),
        ("CONTAINER_HOST", "unix:///nowhere.sock", "no such socket"),
        ("DOCKER_HOST", "tcp://192.0.2.1:2375", "is on another machine"),
        ("DOCKER_HOST", "ssh://me@example.org", "is on another machine"),
    ],
)
def test_a_named_engine_that_cannot_serve_is_reported_in_one_sentence(
    variable: str, named: str, says: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=says) as failed:
        connect({variable: named})
    assert named in str(failed.value)
    assert "\n" not in str(failed.value)


def test_the_sockets_of_rootless_engines_are_tried(tmp_path: Path) -> None:
    (tmp_path / "podman").mkdir()
    rootless = [tmp_path / "docker.sock", tmp_path / "podman" / "podman.sock"]
    for path in rootless:
        path.touch()
    tried = list(places({"XDG_RUNTIME_DIR": str(tmp_path)}))
    assert [url for url in tried if str(tmp_path) in url] == [f"unix://{p}" for p in rootless]
    assert list(places({"DOCKER_HOST": "unix:///one", "CONTAINER_HOST": "unix:///other"})) == [
        "unix:///one"
    ]


@pytest.mark.tool
def test_without_an_engine_the_exit_code_is_4_at_once(tmp_path: Path) -> None:
    for words in (
        ("run", "--runtime", "docker"),
        ("cluster", "up", "--runtime", "docker", "--out", str(tmp_path)),
        ("doctor", "--reap"),
    ):
        done = subprocess.run(
            [FENCEPOST, *words],
            env=nowhere(tmp_path),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 4, words
        (sentence,) = done.stderr.splitlines()
        assert "no container engine answers" in sentence


@pytest.mark.tool
def test_pytest_without_an_engine_ends_with_4_before_any_test(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("def test_it(cluster): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--fencepost-runtime=docker", str(test)],
        env=nowhere(tmp_path),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 4
    assert "no container engine answers" in done.stdout + done.stderr


@pytest.mark.tool
def test_a_doctor_without_an_engine_is_content(tmp_path: Path) -> None:
    done = subprocess.run(
        [FENCEPOST, "doctor", "--json"],
        env=nowhere(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    found = {one["what"]: one for one in json.loads(done.stdout)}
    assert found["container engine"]["good"]
    assert "only the docker runtime needs" in found["container engine"]["message"]


def test_a_client_that_is_too_old_is_named_before_any_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("docker.__version__", "7.0.0")
    with pytest.raises(EnvironmentFailed, match=r"docker 7\.0\.0 is too old .*docker>=7\.1"):
        open_client({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"})
    check_client("7.1.0")


# ---------------------------------------------------------------------------------------- owners


@pytest.mark.tool
def test_an_owner_is_gone_when_its_process_is() -> None:
    assert not is_gone(owner())
    host, boot, namespace, me, started = owner().split("/")
    assert is_gone("/".join([host, boot, namespace, me, str(int(started) + 1)]))
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_gone("/".join([host, boot, namespace, str(child.pid), started]))
    assert is_gone("/".join([host, "an earlier boot", "1", me, started]))


def test_whether_an_owner_of_another_host_or_namespace_is_gone_is_not_known() -> None:
    host, boot, namespace, _, _ = owner().split("/")
    assert not is_gone("/".join([f"not-{host}", "boot", namespace, "1", "1"]))
    assert not is_gone("/".join([host, boot, f"{namespace}0", "999999999", "1"]))
    assert not is_gone("something else")


def test_leftovers_are_named_by_kind_and_run() -> None:
    left = Leftover("network", "abc", "fencepost-7", "20260101-120000-up", owner())
    assert str(left) == "the network fencepost-7 of run 20260101-120000-up"
    assert not left.abandoned


# ------------------------------------------------------------------- what a killed harness leaves


@pytest.mark.real
def test_a_killed_harness_leaves_nothing_alive_and_the_doctor_removes_the_rest(
    tmp_path: Path,
) -> None:
    with docker_bench.engine() as beside:
        client: docker.APIClient = beside._client
        unlabelled = f"not-ours-{os.getpid()}"
        client.create_volume(unlabelled)
        try:
            owning = subprocess.Popen([sys.executable, str(OWNER), str(tmp_path)])
            assert poll((tmp_path / "ready").exists, 60, 0.05), "it did not come up"
            run = (tmp_path / "ready").read_text()

            def ours() -> list[Leftover]:
                return [left for left in beside.leftovers() if left.run == run]

            def running() -> list[str]:
                ids = [left.id for left in ours() if left.kind in ("container", "pod")]
                shown = []
                for one in ids:
                    with suppress(docker.errors.NotFound):  # it has gone since it was listed
                        shown.append(client.inspect_container(one))
                return [one["Name"] for one in shown if one["State"]["Running"]]

            assert (
                len(running()) == 5
            )  # a pod for the controller, the broker and the clients; two nodes
            assert not any(left.abandoned for left in ours())
            owning.kill()
            owning.wait()
            assert poll(lambda: not running(), 5, 0.1), running()
            assert all(left.abandoned for left in ours())
            done = subprocess.run(
                [FENCEPOST, "doctor", "--reap"], capture_output=True, text=True, check=False
            )
            # A run that another worker of pytest starts meanwhile removes them before the doctor.
            assert f"of run {run}" in done.stderr or "PYTEST_XDIST_WORKER" in os.environ
            assert ours() == []
            assert unlabelled in {v["Name"] for v in client.volumes()["Volumes"]}
        finally:
            client.remove_volume(unlabelled)
