"""RP-06 of a leader that joins the ISR by the record that elects it: the leader before must have
asked for that."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.suites.partition_histories import ALL3, B1, B2, B3, lead, partition, verdict

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import IsrChangeAsked

Role = Literal["controller", ""]


def asked(
    h: HistoryBuilder,
    isr: tuple[int, ...],
    process: str = B1,
    epoch: int = 1,
    old: tuple[int, ...] = (1, 2),
) -> None:
    """A process asks for another ISR in that epoch."""
    h.add(
        process,
        IsrChangeAsked(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            broker_epoch=1,
            old_isr=old,
            new_isr=isr,
            ends=(0,) * len(isr),
            high_watermark=0,
            epoch_start=0,
            lag_ns=0,
        ),
    )


def led(role: Role = "controller") -> HistoryBuilder:
    """Broker 1 leads in epoch 1, with the ISR 1 and 2."""
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1, isr=(1, 2), role=role)
    lead(h, B1, 1)
    return h


def joined(h: HistoryBuilder, role: Role = "controller") -> bool:
    """Whether RP-06 is broken by a record that takes broker 3 into the ISR and makes it leader."""
    partition(h, 5, leader=3, epoch=2, isr=ALL3, role=role)
    return verdict(h, "RP-06").verdict is Outcome.VIOLATED


@pytest.mark.parametrize("wanted", [(), (1, 2), (1, 2, 3)])
def test_a_leader_that_joins_the_isr_unasked_breaks_rp_06(wanted: tuple[int, ...]) -> None:
    h = led()
    if wanted:
        asked(h, wanted)
    assert joined(h) is (3 not in wanted)


@pytest.mark.parametrize("usurper", [B2, B3])
def test_only_the_leader_before_can_ask_for_that(usurper: str) -> None:
    h = led()
    asked(h, ALL3, usurper)
    assert joined(h)


def test_it_can_ask_in_its_own_epoch_only() -> None:
    h = led()
    lead(h, B3, 2)
    asked(h, ALL3, B3, epoch=2)
    assert joined(h)


def test_a_process_that_says_later_that_it_leads_in_an_epoch_does_not_lead_in_it() -> None:
    h = led()
    lead(h, B3, 1)
    asked(h, ALL3, B3)
    assert joined(h)


@pytest.mark.parametrize(
    ("old", "broken"), [((1,), True), (ALL3, False)], ids=["a larger ISR", "a smaller one"]
)
def test_the_log_of_a_leader_that_has_named_a_larger_isr_before_names_the_next_one(
    old: tuple[int, ...], broken: bool
) -> None:
    """Such a node does not write its own events; a log may name smaller ISRs only."""
    h = led("")
    asked(h, (1, 2), old=old)
    assert joined(h, "") is broken


def test_a_log_that_has_the_request_keeps_rp_06() -> None:
    h = led("")
    asked(h, (1, 2), old=(1,))
    asked(h, ALL3)
    assert not joined(h, "")
