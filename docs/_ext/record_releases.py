"""Takes what `fencepost conformance --json` printed of releases of Apache Kafka into their record.

    .venv/bin/fencepost conformance suites/fencepost_suites/clients/test_kafka_at_peace.py \\
        --system apache/kraft@3.9.2 --system apache/kraft@4.4.0 --runtime process --json >PRINTED
    .venv/bin/python docs/_ext/record_releases.py PRINTED ...

What was there of the same release is replaced.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fencepost.model.clock import wall_clock
from fencepost_reference.releases import RECORD, Release, added, read


def main(paths: Sequence[str]) -> None:
    """Adds what these files hold to the record."""
    record: Sequence[Release] = read() if RECORD.exists() else ()
    today = wall_clock().date().isoformat()
    for path in paths:
        record = added(record, json.loads(Path(path).read_text()), today)
    lines = ",\n".join(msgspec.json.encode(one).decode() for one in record)
    RECORD.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(sys.argv[1:])
