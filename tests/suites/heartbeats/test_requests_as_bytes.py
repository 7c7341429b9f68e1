"""The codec by which the tests of KIP-343's messages write requests, against bytes by hand."""

from __future__ import annotations

from fencepost_suites.heartbeats.wire_format import WantedIsr, isr_change


def test_an_isr_change_has_its_fields_in_the_documents_order() -> None:
    frame = isr_change(2, 20, {"t": [WantedIsr(leader_epoch=4, partition=7, isr=(2, 3))]})
    by_hand = (
        b"\0\0\0\2"  # broker_id
        b"\0\0\0\0\0\0\0\x14"  # incarnation_id
        b"\0\0\0\1\0\1t"  # one topic, its name
        b"\0\0\0\1\0\0\0\4\0\0\0\7"  # one partition: leader_epoch, partition_index
        b"\0\0\0\2\0\0\0\2\0\0\0\3"  # two members
    )
    assert frame.endswith(by_hand)
