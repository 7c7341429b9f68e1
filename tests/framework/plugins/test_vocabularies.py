"""Clauses about the events of a vocabulary bind the systems that record such events."""

from __future__ import annotations

import pytest

from fencepost.judging.rules import Clause
from fencepost.model.view import Fold
from fencepost.plugins.manager import _bound, load


class OwnFold(Fold):
    """A fold of this package."""


class Swarm:
    """A system of the plane `swarm`, with folds."""

    plane = "swarm"

    def __init__(self, *folds: type[Fold]) -> None:
        self.folds = folds


@pytest.mark.parametrize(
    ("vocabulary", "planes", "folds", "binds"),
    [
        ("tests", (), (OwnFold,), True),
        ("fencepost_kafka", (), (OwnFold,), False),
        ("tests", (), (), False),
        ("", (), (), True),
        ("tests", ("quorum",), (OwnFold,), False),
    ],
)
def test_a_clause_of_a_vocabulary_binds_the_systems_whose_folds_are_of_it(
    vocabulary: str, planes: tuple[str, ...], folds: tuple[type[Fold], ...], binds: bool
) -> None:
    clause = Clause("X-1", "x", planes, "It holds.", vocabulary=vocabulary)
    found = _bound({"X-1": clause}, [Swarm(*folds)])
    assert found["X-1"].binds("swarm") is binds


def test_no_clause_about_partitions_binds_a_system_that_has_none() -> None:
    """A stranger's tables were full of Kafka's rows."""
    binding = [name for name, clause in load().clauses.items() if clause.binds("redis-sentinel")]
    assert binding == ["AVAIL-stopped"]
