"""Starts one client: `python -m fencepost_kafka.confluent CONFIG`."""

from __future__ import annotations

import sys

# kio imports hypothesis if it is installed. That takes two seconds of processor time, as hypothesis
# computes its table of characters anew in each worker's own folder.
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

from fencepost_kafka.confluent.worker import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv))
