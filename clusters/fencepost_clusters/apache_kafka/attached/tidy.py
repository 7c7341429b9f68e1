"""Removes from a cluster every topic whose name begins with `OURS`, and prints the name of each.

    python -m fencepost_clusters.apache_kafka.attached.tidy 127.0.0.1:19092 127.0.0.1:19093

It is started by the guard of an attached run, at its end and after its death alike. It ends with 1
and a sentence if any is left.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fencepost import OURS, end_of
from fencepost_clusters.apache_kafka.attached.asking import (
    Address,
    Unanswered,
    delete_topics,
    metadata_by,
)

CLIENT = "fencepost-tidy"


def tidied(nodes: Sequence[Address]) -> Sequence[str]:
    """Has the first node that can do it delete our topics; their names. Raises Unanswered if one
    is left, or no node answers."""
    why = Unanswered("no node is named")
    for address in nodes:
        try:
            ours = _ours(address)
            failed = delete_topics(address, CLIENT, tuple(ours)) if ours else {}
            if failed:
                raise Unanswered(f"{', '.join(failed)} stays: {', '.join(set(failed.values()))}")
            return ours
        except Unanswered as silent:
            why = silent
    raise why


def _ours(address: Address) -> Sequence[str]:
    return [name for name in metadata_by(address, CLIENT).topics if name.startswith(OURS)]


def main(argv: Sequence[str]) -> int:
    """See the module."""
    try:
        for name in tidied([end_of(one) for one in argv[1:]]):
            print(name)
    except Unanswered as left:
        print(left, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
