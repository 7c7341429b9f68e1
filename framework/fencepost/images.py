"""For authors of systems: what is in an image that somebody else made, and an image that is made on
it. It needs the package docker, which the extra `docker` brings."""

from __future__ import annotations

from fencepost.model.extras import check_extra

# At the import, since nothing below is of use without it, and its own error would name no remedy.
check_extra("docker", "an image of a system")

from fencepost.runtimes.docker.images import Image, open_image  # noqa: E402

__all__ = ["Image", "open_image"]
