"""For authors of reports: runs as columns. It needs pyarrow, which the extra `spark` brings."""

from __future__ import annotations

from fencepost.history.columns import column_type, schema_of
from fencepost.history.event_table import ENVELOPE, EventTable
from fencepost.judging.columnar import EVENTS, OPERATIONS, Columns, confirmed

__all__ = [
    "ENVELOPE",
    "EVENTS",
    "OPERATIONS",
    "Columns",
    "EventTable",
    "column_type",
    "confirmed",
    "schema_of",
]
