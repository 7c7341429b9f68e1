"""Starts one node: `python -m fencepost_clusters.reference.shell node.json`."""

from __future__ import annotations

import sys

from fencepost_clusters.reference.shell.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
