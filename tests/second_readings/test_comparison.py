"""Second readings and the rules say the same of histories that are changed at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - seeded here

import pytest

from fencepost import Codec
from fencepost.judging.verdicts import Outcome
from fencepost.plugins.manager import Plugins, load
from second_readings.comparison import (
    DISAGREEMENTS,
    Agreement,
    compared,
    read,
    shrunk,
    verdict,
    words_of,
)
from second_readings.families import FAMILIES, Family, family
from second_readings.mutations import changed
from second_readings.reading import READINGS, History, Reading, Says, Word, said, violated
from second_readings.sources import KEPT_RUNS, histories, recorded_below, run_of

COMPARED = 200
"""How many histories of each family are compared here; `./dev bench readings` compares more."""
OF_A_RUN = 50
KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.fixture(scope="module")
def kept_runs(plugins: Plugins) -> Sequence[tuple[str, History]]:
    return [one for root in KEPT_RUNS for one in recorded_below(root, plugins)]


def made(
    one: Family, plugins: Plugins, kept_runs: Sequence[tuple[str, History]]
) -> Iterator[History]:
    for number in range(COMPARED // OF_A_RUN):
        random = Random(f"{one.name}/{number}")
        run = run_of(one, plugins, random, kept_runs)
        assert run is not None
        yield from histories(one, plugins.promises, run[1], random, OF_A_RUN)


@pytest.mark.parametrize("name", [one.name for one in FAMILIES])
def test_no_reading_and_no_rule_disagree(
    name: str, plugins: Plugins, kept_runs: Sequence[tuple[str, History]]
) -> None:
    one, found = family(name), Counter[Agreement]()
    for history in made(one, plugins, kept_runs):
        for clause in one.clauses:
            agreement = compared(clause, history, plugins.promises)
            found[agreement] += 1
            assert agreement not in DISAGREEMENTS, (
                clause,
                agreement,
                words_of(shrunk(clause, history, plugins.promises), clause, plugins.promises),
            )
    # Recorded runs of a few findings only, cut and changed, seldom break what they did not break.
    assert found[Agreement.BOTH_VIOLATED] > 0 or not one.systems
    assert found[Agreement.BOTH_SILENT] > 0


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_history_that_was_kept_is_judged_as_its_document_says(
    path: Path, plugins: Plugins
) -> None:
    kept = read(path)
    history = kept.history(Codec(plugins.promises.kinds))
    found, _ = verdict(kept.clause, history, plugins.promises)
    assert found is not None
    assert (found.verdict is Outcome.VIOLATED) is (kept.decided is Says.VIOLATED)
    assert said(READINGS[kept.clause](history)) in (kept.decided, Says.UNDECIDED)


def test_every_clause_with_a_reading_is_known_and_belongs_to_one_family(plugins: Plugins) -> None:
    of_families = Counter(clause for one in FAMILIES for clause in one.clauses)
    assert of_families == Counter([*READINGS])
    assert set(READINGS) <= set(plugins.promises.clauses)


def test_a_disagreement_is_found_and_shrunk_to_what_it_needs(
    plugins: Plugins,
    kept_runs: Sequence[tuple[str, History]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_any_leader(history: History) -> Iterator[Word]:
        yield from (violated(at.process) for at in history.of(*kinds))

    kinds = READINGS["ETCD-01"].kinds
    monkeypatch.setitem(READINGS, "ETCD-01", Reading("ETCD-01", of_any_leader, kinds))
    history = next(made(family("ETCD"), plugins, kept_runs))
    assert compared("ETCD-01", history, plugins.promises) is Agreement.UNNOTICED
    small = shrunk("ETCD-01", history, plugins.promises)
    assert [type(event.body) in kinds for event in small.events] == [True]


def test_a_seed_changes_a_history_in_one_way(
    plugins: Plugins, kept_runs: Sequence[tuple[str, History]]
) -> None:
    history = next(made(family("ETCD"), plugins, kept_runs))
    once, again = (changed(history, Random(7)) for _ in range(2))
    assert once == again
    assert any(changed(history, Random(seed)).events != history.events for seed in range(5))


def test_a_changed_history_numbers_the_events_of_each_process_from_0(
    plugins: Plugins, kept_runs: Sequence[tuple[str, History]]
) -> None:
    for history in list(made(family("KR"), plugins, kept_runs))[:20]:
        due: Counter[str] = Counter()
        for event in history.events:
            assert event.node_seq == due[event.process]
            due[event.process] += 1
