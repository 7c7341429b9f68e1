"""The secrets of a run: who can read them, how long they are there, and that a replay has them."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from fencepost import Layout, Link, Shape, Slot, UsageError
from fencepost.history.run_folder import RunFolder, info_of
from fencepost.model.system.subject import Subject
from fencepost.runs.replay import recorded_shape
from fencepost.runs.run import RunSpec, check_spec
from fencepost.runtimes.process.secrets import secrets_folder
from fencepost_clusters.apache_kafka.cluster import KRaft

SECURED = Shape(security="SSL")


@dataclass(frozen=True)
class Numbered:
    """Addresses that say who dials whom: `1.2` is where the slot 1 reaches the slot 2."""

    def own(self, slot: Slot) -> str:
        return f"{slot.index}.{slot.index}"

    def seen(self, source: Slot, target: Slot) -> str:
        return f"{source.index}.{target.index}"

    def outside(self, slot: Slot) -> str:
        return self.own(slot)


class Asked(KRaft):
    """A system whose secrets are what it was asked."""

    def secrets(
        self,
        shape: Shape,
        layout: Layout,
        addresses: Mapping[str, Sequence[str]],
        now: datetime,
    ) -> Mapping[str, str]:
        return {"shape": shape.security, **{slot: " ".join(at) for slot, at in addresses.items()}}


def test_only_the_user_reads_them_and_they_are_gone_after_the_run() -> None:
    slots = (Slot("broker-1", "broker", 1, 1), Slot("broker-2", "broker", 2, 2))
    layout = Layout(slots, (Link("broker-2", "broker-1", 9092),))
    with secrets_folder(Subject(Asked(), SECURED), layout, Numbered()) as folder:
        assert folder is not None
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        # Every address at which a node is reached, and no other.
        found = {path.name: path.read_text() for path in folder.iterdir()}
        assert found == {"shape": "SSL", "broker-1": "1.1 2.1", "broker-2": "2.2"}
    assert not folder.exists()


def test_an_error_in_the_run_leaves_none() -> None:
    layout = Layout((Slot("broker-1", "broker", 1, 1),), ())
    opened = secrets_folder(Subject(Asked(), SECURED), layout, Numbered())
    folder = opened.__enter__()
    # It is no error of the folder's own: it stays what it is.
    assert not opened.__exit__(OSError, OSError("from the run"), None)
    assert folder is not None
    assert not folder.exists()


def test_an_open_cluster_has_none() -> None:
    with secrets_folder(Subject(Asked(), Shape()), Layout((), ()), Numbered()) as folder:
        assert folder is None


def test_a_runtime_that_keeps_none_is_refused_for_a_secured_cluster() -> None:
    says = "the docker runtime keeps no secrets: the security 'SSL' needs the process runtime"
    with pytest.raises(UsageError, match=says):
        check_spec(RunSpec(KRaft(), SECURED, "docker"))


def test_a_replay_has_the_security_of_the_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_info(info_of("run", Subject(KRaft(), SECURED), "process", 0))
    assert recorded_shape(folder.info()).security == "SSL"
