"""The advice to install an extra fits how Fencepost is installed."""

from __future__ import annotations

import pytest

from fencepost.model.extras import installing


@pytest.mark.parametrize(
    ("recorded", "command"),
    [
        ("", "pip install 'fencepost[spark]'"),
        (
            '{"url": "file:///home/me/my%20clone", "dir_info": {}}',
            "pip install '/home/me/my clone[spark]'",
        ),
        (
            '{"url": "file:///home/me/fencepost", "dir_info": {"editable": true}}',
            "pip install -e '/home/me/fencepost[spark]'",
        ),
        (
            '{"url": "file:///x/fencepost-1.whl", "archive_info": {}}',
            "pip install 'fencepost[spark]'",
        ),
    ],
    ids=["an index", "a clone", "an editable clone", "a wheel"],
)
def test_an_extra_is_installed_from_where_fencepost_is(recorded: str, command: str) -> None:
    assert installing("spark", recorded) == command
