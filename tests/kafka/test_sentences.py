"""Events in words: every kind has a sentence; an unknown kind is shown as its name and fields."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from msgspec import Struct

import fencepost_kafka as k
from fencepost import events
from fencepost.events.words import numbers, span
from fencepost.judging.event_formatter import sentence_of


def made(kind: type[Struct]) -> Struct:
    """An event body with a value in each field."""

    def value(annotation: Any) -> object:
        if get_origin(annotation) is tuple:
            return (value(get_args(annotation)[0]),) * 2
        if get_origin(annotation) is UnionType:
            return None
        if get_origin(annotation) is Literal:
            return get_args(annotation)[0]
        return {str: "word", float: 0.5, int: 7, bool: True}[annotation]

    return kind(**{field.name: value(field.type) for field in msgspec.structs.fields(kind)})


@pytest.mark.parametrize("kind", [*events.KINDS, *k.KINDS], ids=lambda kind: kind.__name__)
def test_every_kind_has_a_sentence(kind: type[Struct]) -> None:
    words = sentence_of(made(kind))
    assert words
    assert "\n" not in words
    assert "(" not in words.split(" ")[0], "no repr"
    if kind is not events.Unrecognised:
        assert events.kind_name(kind) not in words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            k.BrokerStateChanged(
                broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
            ),
            "went from ACTIVE to FENCED (lease_expired), broker epoch 5",
        ),
        (
            k.PartitionCommitted(
                offset=9,
                topic="orders",
                partition=2,
                leader=-1,
                leader_epoch=4,
                isr=(3,),
                replicas=(1, 2, 3),
            ),
            "committed at offset 9: no broker leads orders-2 in leader epoch 4, ISR 3",
        ),
        (
            events.ProcessExited(ended="broker-1#1", exit_code=-9, signal=9, expected=True),
            "broker-1#1 ended by signal 9",
        ),
        (
            events.ProcessExited(ended="broker-1#1", exit_code=3, signal=0, expected=False),
            "broker-1#1 ended with code 3, unexpectedly",
        ),
        (
            k.LogAppended(
                topic="orders",
                partition=0,
                base_offset=4,
                log_end=5,
                expected_base=4,
                batch_epoch=1,
                leader_epoch=1,
                as_leader=False,
                digest="d",
                producer_id=-1,
                base_sequence=-1,
            ),
            "stored fetched records in orders-0 at offset 4, leader epoch 1",
        ),
        (
            k.Polled(topic="orders", partition=0, offsets=(), operations=(), final=True),
            "got nothing of orders-0 in the final reading",
        ),
        (
            events.FaultInjected(
                fault_id="cut-1",
                fault="cut",
                targets=("broker-1",),
                receipt=False,
                evidence="no answer before",
            ),
            "cut broker-1 began (cut-1): without a receipt (no answer before)",
        ),
    ],
)
def test_the_sentences_of_events(body: Struct, words: str) -> None:
    assert sentence_of(body) == words


class Sneezed(Struct, frozen=True, tag="plugin.sneezed"):
    loudness: int


def test_a_plugins_kind_reads_as_its_name_and_fields() -> None:
    assert sentence_of(Sneezed(3)) == "plugin.sneezed: loudness=3"


@pytest.mark.parametrize(
    ("values", "words"),
    [((), "none"), ((1,), "1"), ((1, 2), "1 and 2"), ((1, 2, 3), "1, 2 and 3")],
)
def test_numbers_read_as_people_count(values: tuple[int, ...], words: str) -> None:
    assert numbers(values) == words


def test_times_are_written_in_the_unit_that_fits() -> None:
    assert (span(12_000_000), span(5_240_000_000)) == ("12 ms", "5.2 s")
