"""What a soak says of clients whose library has failed."""

from __future__ import annotations

from fencepost import ClientFailed
from fencepost.runs.random_schedule import failed_clients
from fencepost.testing import HistoryBuilder


def test_a_client_whose_library_failed_is_named_and_others_are_not() -> None:
    history = HistoryBuilder()
    history.add("clients/producer-1#1", ClientFailed(error="OUT_OF_ORDER: batch 7", fatal=True))
    history.add("clients/reader-1#1", ClientFailed(error="timed out", fatal=False))
    assert list(failed_clients(history.events())) == [
        "clients/producer-1#1 failed, and worked no more: OUT_OF_ORDER: batch 7"
    ]
