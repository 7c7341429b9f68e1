"""What any run needs of its machine."""

from __future__ import annotations

import sys

from fencepost.model.errors import EnvironmentFailed


def check_platform(platform: str = sys.platform) -> None:
    """Raises EnvironmentFailed for another platform than Linux."""
    if platform != "linux":
        raise EnvironmentFailed(
            f"Fencepost runs on Linux only, not on {platform}: it needs every address of "
            "127.0.0.0/8, inotify and /proc"
        )
