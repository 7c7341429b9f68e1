"""Mutants of several systems' code: each runs under the suite of the system whose decision it is.

Systems share code, and a part of a system's code no other one runs. So a change is tried in those
systems that name its module as their own (`Mutable`), one after the other, until one notices it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from fencepost.campaigns.mutants.campaign import (
    Campaign,
    Mutant,
    Results,
    at_places,
    drawn_from,
    every_of,
    modules_of,
)
from fencepost.campaigns.mutants.mutations import Mutation
from fencepost.model.errors import UsageError
from fencepost.model.system.capabilities import Mutable, System


def changeable(systems: Iterable[System]) -> Sequence[System]:
    """Those of these systems that name code of their own to change."""
    return [one for one in systems if isinstance(one, Mutable)]


@final
@dataclass(frozen=True)
class Owners:
    """Tries mutants of the code of several systems, each in a campaign of its own; `names`: only of
    these modules and packages (none: of all)."""

    campaigns: Sequence[Campaign]
    names: Sequence[str] = ()

    @cached_property
    def owned(self) -> Mapping[str, Sequence[Campaign]]:
        """Each module, and the campaigns of the systems that name it.

        Raises UsageError for one of `names` of which no system does.
        """
        owned: dict[str, list[Campaign]] = {}
        for campaign in self.campaigns:
            assert isinstance(campaign.system, Mutable)
            for module in modules_of(campaign.system.mutable()):
                owned.setdefault(module, []).append(campaign)
        if not self.names:
            return dict(sorted(owned.items()))
        wanted = modules_of(self.names)
        for module in wanted:
            if module not in owned:
                raise UsageError(
                    f"no system names {module} as its own: --module needs --tests that notice a "
                    "change of it"
                )
        return {module: owned[module] for module in wanted}

    def drawn(self, count: int, seed: int) -> Sequence[Mutation]:
        """`count` mutations of all that code, drawn by a seed; all if there are fewer."""
        return drawn_from(every_of(self.owned), count, seed)

    def at(self, places: Sequence[str]) -> Sequence[Mutation]:
        """Every mutation in one of these places; raises UsageError for a place without one."""
        return at_places(every_of(self.owned), places, "none of the systems")

    def run(self, mutations: Sequence[Mutation]) -> Results:
        """Tries each."""
        tried: dict[int, Mutant] = {}
        for campaign in self.campaigns:
            mine = [
                number
                for number, one in enumerate(mutations)
                if campaign in self.owned[one.module]
                and not (number in tried and tried[number].noticed_by)
            ]
            if mine:
                some = [mutations[number] for number in mine]
                campaign.report(f"{campaign.system.name}: {len(some)} changes")
                found = campaign.tried(some, campaign.healthy(some))
                tried |= dict(zip(mine, found, strict=True))
        return Results.of(tried.values())
