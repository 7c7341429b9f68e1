"""The entry point of the program `fencepost`.

An error while its own modules are imported, as in a damaged installation, is an internal one, too:
Python would end with 1, which stands for a violation.
"""

from __future__ import annotations

import sys
import traceback
from typing import NoReturn

from fencepost.model.errors import InternalError


def main() -> NoReturn:
    """Runs the command line; see `fencepost.commands.cli`."""
    try:
        from fencepost.commands.cli import main as run  # noqa: PLC0415
    except Exception as error:
        traceback.print_exc()
        found = InternalError(f"{type(error).__name__}: {error}")
        print(f"fencepost: {found}", file=sys.stderr)
        sys.exit(found.exit_code)
    run()
