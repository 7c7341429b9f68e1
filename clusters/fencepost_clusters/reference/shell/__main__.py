"""Starts one node: `python -m fencepost_clusters.reference.shell node.json`."""

from __future__ import annotations

import sys

# kio imports hypothesis where that is installed, which takes longer than all else a node imports.
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

from fencepost_clusters.reference.shell.program import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv))
