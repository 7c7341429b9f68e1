"""Mutants of the reference cluster, each tried in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

from fencepost import UsageError
from fencepost.campaigns.mutants.campaign import Campaign, Results
from fencepost.campaigns.mutants.campaign import Mutant as Tried
from fencepost.campaigns.mutants.reach import Part, Reach
from fencepost.plugins.manager import Plugins, load

pytestmark = pytest.mark.slow
FAILOVER = "replication/test_replication.py::test_acked_writes_survive_failover"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.fixture
def campaign(plugins: Plugins) -> Campaign:
    return Campaign(
        system=plugins.system("reference/quorum"),
        paths=(),
        jobs=1,
        seeds=0,
        span_ms=1_000,
        report=lambda line: None,
    )


def test_a_seed_draws_the_same_changes_again_and_another_seed_others(campaign: Campaign) -> None:
    first = campaign.drawn(20, 1)
    assert len(first) == 20
    assert first == campaign.drawn(20, 1)
    assert first != campaign.drawn(20, 2)
    assert {one.module.split(".")[2] for one in first} == {"core"}


@pytest.mark.tool
def test_a_change_that_stops_all_elections_is_noticed_by_a_test(campaign: Campaign) -> None:
    every = campaign.drawn(10**6, 1)
    stop = next(one for one in every if one.was == "self._stand(now)")
    source = find_spec(stop.module)
    assert source is not None
    assert source.origin is not None
    reaching = Reach([Part(FAILOVER, 1.0, {source.origin: frozenset({stop.line})})])
    tried = campaign.attempt(reaching, stop)
    assert FAILOVER in tried.noticed_by
    assert (tried.file, tried.reached_by) == (stop.module, 1)


def test_a_change_of_a_line_that_nothing_executes_is_not_tried(campaign: Campaign) -> None:
    (drawn,) = campaign.drawn(1, 1)
    tried = campaign.attempt(Reach([Part("test_a", 1.0, {})]), drawn)
    assert (tried.noticed_by, tried.reached_by) == ("", 0)


def test_what_nothing_noticed_comes_first() -> None:
    missed = Tried(file="m", line=3, was="a", now="b", noticed_by="", seconds=1.0, reached_by=2)
    seen = Tried(file="l", line=9, was="a", now="b", noticed_by="test_a", seconds=1.0, reached_by=1)
    printed = Results([missed, seen]).as_json()
    assert (printed["of"], printed["noticed"]) == (2, 1)
    mutants = printed["mutants"]
    assert isinstance(mutants, list)
    assert mutants[0] == {
        "file": "m",
        "line": 3,
        "was": "a",
        "now": "b",
        "noticed_by": "",
        "seconds": 1.0,
        "reached_by": 2,
    }


def test_a_system_that_names_no_code_is_refused(campaign: Campaign, plugins: Plugins) -> None:
    other = replace(campaign, system=plugins.system("apache/kraft"))
    with pytest.raises(UsageError, match="apache/kraft names no code"):
        other.drawn(3, 1)
