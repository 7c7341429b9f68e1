"""Mutants of the reference cluster, each tried in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost import UsageError
from fencepost.campaigns.mutants.campaign import Campaign, Results
from fencepost.campaigns.mutants.campaign import Mutant as Tried
from fencepost.campaigns.mutants.reach import IMPORTS, Part, Reach
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


def test_a_compiled_module_is_refused(campaign: Campaign) -> None:
    with pytest.raises(UsageError, match=r"msgspec\._core is compiled"):
        replace(campaign, modules=["msgspec._core"]).drawn(1, 1)


def run(campaign: Campaign, was: str, reached_by: Sequence[str]) -> tuple[Tried, ...]:
    """Tries the first two mutations of this text, as if these tests reached them."""
    drawn = [one for one in campaign.drawn(10**6, 1) if one.was == was][:2]
    parts = [Part(name, 1.0, range(len(drawn))) for name in reached_by]
    return tuple(campaign.run(drawn, Reach(parts)).mutants)


@pytest.mark.tool
def test_a_change_that_stops_all_elections_is_noticed_by_a_test(campaign: Campaign) -> None:
    stops, *_ = run(campaign, "self._stand(now)", [FAILOVER])
    assert FAILOVER in stops.noticed_by
    assert stops.reached_by == 1


@pytest.mark.tool
def test_a_change_of_what_is_executed_at_import_has_a_process_of_its_own(
    campaign: Campaign,
) -> None:
    drawn = [one for one in campaign.drawn(10**6, 1) if one.was == "self._stand(now)"]
    parts = [Part(IMPORTS, 1.0, [0]), Part(FAILOVER, 1.0, ())]
    (tried,) = campaign.run(drawn[:1], Reach(parts)).mutants
    assert FAILOVER in tried.noticed_by


def test_a_change_that_nothing_reaches_is_not_tried(campaign: Campaign) -> None:
    for tried in run(campaign, "self._stand(now)", []):
        assert (tried.noticed_by, tried.reached_by) == ("", 0)


@pytest.mark.tool
def test_a_change_of_a_module_that_only_tests_import_is_tried(campaign: Campaign) -> None:
    suites = Path(__file__).parents[2] / "suites"
    changed = replace(
        campaign,
        modules=["fencepost_suites.quorum.wire_format"],
        paths=[str(suites / "quorum" / "test_record_values.py")],
    )
    drawn = [one for one in changed.drawn(10**6, 1) if one.was == "head[16] != 2"]
    (tried,) = changed.run(drawn, changed.healthy(drawn)).mutants
    assert "test_record_values" in tried.noticed_by


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


def test_all_changes_of_a_line_are_chosen_by_its_place(campaign: Campaign) -> None:
    first = campaign.drawn(1, 1)[0]
    place = f"{first.module.rpartition('.')[2]}:{first.line}"
    assert first in campaign.at([place])
    assert {one.line for one in campaign.at([place])} == {first.line}
    with pytest.raises(UsageError, match="nothing to change at nowhere:1"):
        campaign.at([place, "nowhere:1"])


def test_a_system_that_names_no_code_is_refused(campaign: Campaign, plugins: Plugins) -> None:
    other = replace(campaign, system=plugins.system("apache/kraft"))
    with pytest.raises(UsageError, match="apache/kraft names no code"):
        other.drawn(3, 1)


RULES = "tests/suites/clients/test_client_rules.py"
RULES_PATH = str(Path(__file__).parents[3] / RULES)


@pytest.mark.tool
def test_a_rule_that_is_changed_is_noticed_by_its_histories(campaign: Campaign) -> None:
    """Of the system itself nothing runs: neither its suite nor a schedule."""
    rules = replace(campaign, modules=["fencepost_suites.clients.aborted"], paths=[RULES_PATH])
    drawn = [one for one in rules.drawn(10**6, 1) if one.was == 'body.outcome == "failed"']
    reach = rules.healthy(drawn)
    (tried,) = rules.run(drawn, reach).mutants
    assert RULES in tried.noticed_by
    assert 0 < tried.reached_by < 100


def test_the_tests_of_a_package_are_not_changed(campaign: Campaign) -> None:
    every = replace(campaign, modules=["fencepost_suites"]).drawn(10**6, 1)
    assert every
    assert not [one for one in every if ".test_" in one.module]
