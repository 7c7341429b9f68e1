"""Takes what `fencepost conformance --json` printed into the record of the page about it.

    .venv/bin/python docs/_ext/record_conformance.py PRINTED.json ...

What was there of the same system and runtime is replaced.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fencepost.model.clock import wall_clock
from fencepost_reference.matrix import RECORD, Record, added, read


def main(paths: Sequence[str]) -> None:
    """Adds what these files hold to the record."""
    record = read() if RECORD.exists() else Record({}, ())
    today = wall_clock().date().isoformat()
    for path in paths:
        record = added(record, json.loads(Path(path).read_text()), today)
    lines = ",\n".join(msgspec.json.encode(one).decode() for one in record.outcomes)
    made = msgspec.json.encode(record.made).decode()
    RECORD.write_text(f'{{"made":{made},\n"outcomes":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
