"""Starts one client: `python -m fencepost_kafka.confluent CONFIG`."""

from __future__ import annotations

import sys

from fencepost_kafka.confluent.worker import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
