"""Run folder: documented, versioned, readable however the run ended."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from fencepost import EnvironmentFailed, Shape, UsageError
from fencepost.history.run_folder import RunFolder, RunInfo, RunSlot, info_of
from fencepost.model.secrets import redacted
from fencepost.model.system.subject import Subject
from fencepost.runs.run import new_folder
from fencepost_clusters.reference.cluster import ReferenceQuorum

NOW = datetime(2026, 11, 21, 4, 5, 6, tzinfo=UTC)
INFO = RunInfo(
    run="run-1",
    system="echo/mesh",
    runtime="process",
    seed=7,
    counts={"broker": 1},
    settings={"min.insync.replicas": "2"},
    defects=("QC-17",),
    slots=(RunSlot("broker-1", "broker", 1, 2, False),),
    versions={"toxiproxy": "v2.12.0"},
    started_at=NOW.isoformat(),
    clock_origin_ns=5,
)


def test_info_that_was_written_is_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    folder.write_info(INFO)
    assert RunFolder(tmp_path / "run-1").info() == INFO
    assert folder.run == "run-1"


def test_the_file_has_its_versions(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    folder.write_info(INFO)
    written = json.loads((folder.path / "run.json").read_text())
    assert (written["layout"], written["events"]) == (2, 3)


@pytest.mark.parametrize("says", ["7.0.15", ""])
def test_the_version_that_a_system_says_is_that_of_its_run(says: str) -> None:
    subject = Subject(replace(ReferenceQuorum(), name="acme/lamps", version=says), Shape(), 7)
    info = info_of("run-1", subject, "process", 5)
    assert info.versions.get("acme/lamps", "") == says
    assert info.release == f"acme/lamps {says}".rstrip()


@pytest.mark.parametrize(
    ("named", "release"),
    [
        ("", "acme/lamps 4.4.0"),
        ("@4.4.0", "acme/lamps 4.4.0"),
        ("@/opt/lamps", "acme/lamps@/opt/lamps 4.4.0"),
    ],
)
def test_a_build_that_is_named_by_its_folder_keeps_that_name(named: str, release: str) -> None:
    info = msgspec.structs.replace(
        INFO, system=f"acme/lamps{named}", versions={"acme/lamps": "4.4.0", "python": "3.11"}
    )
    assert (info.release, info.version) == (release, "4.4.0")


def test_a_newer_layout_is_refused_by_name(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    (folder.path / "run.json").write_text('{"layout": 99, "something": "new"}')
    with pytest.raises(UsageError, match="layout 99; this Fencepost knows 1 to 2"):
        folder.info()


@pytest.mark.parametrize(
    "check", ["RP-05", "CHECK-", "CHECK-a b", "CHECK-<i>", "CHECK-" + "x" * 99]
)
def test_a_check_that_is_none_is_refused(tmp_path: Path, check: str) -> None:
    """The clause of that id would be judged by what the folder says."""
    folder = RunFolder.create(tmp_path / "run")
    folder.write_info(msgspec.structs.replace(INFO, checks={check: "it holds"}))
    with pytest.raises(UsageError, match="is not the id of a check"):
        folder.info()
    folder.write_info(msgspec.structs.replace(INFO, checks={"CHECK-all-billed": "it holds"}))
    assert folder.info().checks == {"CHECK-all-billed": "it holds"}


@pytest.mark.parametrize("text", ["", "{", '{"layout": "one"}', '{"layout": 1}'])
def test_a_damaged_run_json_is_named(tmp_path: Path, text: str) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    (folder.path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=r"run\.json cannot be read"):
        folder.info()


@pytest.mark.parametrize(
    "started_at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "yesterday"]
)
def test_a_start_that_is_no_time_in_utc_is_named(tmp_path: Path, started_at: str) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    folder.write_info(msgspec.structs.replace(INFO, started_at=started_at))
    with pytest.raises(UsageError, match=r"run\.json cannot be read: .*started_at"):
        folder.info()


def test_another_folder_is_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        RunFolder(tmp_path).info()


def test_a_folder_is_used_by_one_run(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run-1")
    with pytest.raises(UsageError, match="not empty"):
        RunFolder.create(tmp_path / "run-1")


def test_a_folder_is_its_users_alone(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "run").path
    named = RunFolder.create_below(tmp_path / "runs", "demo", NOW).path
    assert [stat.S_IMODE(one.stat().st_mode) for one in (made, named)] == [0o700, 0o700]


def test_a_folder_can_be_read_by_a_group_if_the_folder_above_it_is_shared_with_that_group(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "runs"
    shared.mkdir()
    os.chown(shared, -1, os.getgid())
    shared.chmod(0o2770)
    for made in (
        RunFolder.create(shared / "run").path,
        RunFolder.create_below(shared, "demo", NOW).path,
        new_folder(shared, "test").path,
    ):
        assert stat.S_IMODE(made.stat().st_mode) == 0o2750
        assert made.stat().st_gid == shared.stat().st_gid


def test_a_group_reads_no_runs_because_it_shares_the_project(tmp_path: Path) -> None:
    """The set-group-ID bit of a folder passes to the folders that are made in it."""
    tmp_path.chmod(0o2770)
    made = new_folder(tmp_path / ".fencepost", "test").path
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_runs_of_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    names = [
        RunFolder.create_below(tmp_path, "reference/quorum-7", NOW).path.name for _ in range(3)
    ]
    first = "20261121-040506-reference-quorum-7"
    assert names == [first, f"{first}-2", f"{first}-3"]


def test_a_root_that_cannot_be_written_is_an_environment_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        EnvironmentFailed, match="file/20261121-040506-x cannot be written: Not a directory"
    ):
        RunFolder.create_below(tmp_path / "file", "x", NOW)


def test_a_clients_files_stay_in_their_folders(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    assert folder.events_of("clients/a#1") == folder.events / "clients.a#1.ndjson"
    assert folder.log_of("clients/a#1").parent == folder.logs


def test_disks_can_be_discarded_and_other_files_stay(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    folder.write_info(INFO)
    folder.data_of("broker-1").mkdir()
    folder.discard_data()
    folder.discard_data()
    assert not folder.data.exists()
    assert folder.info() == INFO


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("ssl.keystore.PASSWORD", True),
        ("sasl.plain.users", True),
        ("client.secret", True),
        ("ssl.key", True),
        ("broker.lease.timeout.ms", False),
        ("num.keys", False),
        ("super.users.max", False),
    ],
)
def test_a_secret_setting_is_not_recorded(name: str, secret: bool) -> None:
    assert redacted({name: "x"}) == {name: "<redacted>" if secret else "x"}
