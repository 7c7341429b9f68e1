"""Real servers, broken on purpose. Each test has a cluster of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import Cluster, Shape
from fencepost.testing import Faults, kit
from fencepost_acme.workload import AcmeClients


def test_the_system_conforms(tmp_path: Path) -> None:
    kit.check_system("acme/servers", tmp_path)


@pytest.mark.clause("ACME-1")
def test_a_server_that_is_killed_gives_out_no_token_twice(
    cluster: Cluster, faults: Faults, clients: AcmeClients
) -> None:
    taker = clients.take("server-1")
    cluster.eventually(taker.has_taken(3, "server-1"))
    with faults.kill("server-1"):
        cluster.eventually(cluster.node("server-1").dead)
    another = clients.take("server-1")
    cluster.eventually(another.has_taken(3, "server-1"))


def test_a_server_that_forgets_its_tokens_is_found(tmp_path: Path) -> None:
    shape = Shape(defects=("forgets-tokens",))
    with kit.started("acme/servers", tmp_path, shape=shape) as run:
        run.clients.load()
        taker = run.clients.take("server-1")
        run.base.eventually(taker.has_taken(3, "server-1"))
        with run.faults.kill("server-1"):
            pass
        assert run.finish().judgement.broken == ("ACME-1",)
