"""Shared by tests that open pages: a Chromium of this machine, without a window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REQUIRED = os.environ.get("FENCEPOST_BROWSER") == "required"
"""Set where a missing program is a failure, and no reason to skip."""


def program(*names: str) -> str:
    """The path of the first of these programs that is installed; skips the test without one."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        lacking = f"none of these programs is in the PATH: {', '.join(names)}"
        pytest.fail(lacking) if REQUIRED else pytest.skip(lacking)
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window; skips the test if none is installed."""
    path = program(*PROGRAMS)
    with sync_playwright() as playwright:
        # As root it starts only without its sandbox. The pages are our own.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@dataclass
class Tab:
    """A tab, and what its page did: the requests it made, its errors, messages and dialogs."""

    page: Page
    requests: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def open(self, path: Path) -> None:
        self.requests.clear()
        self.page.goto(path.as_uri(), wait_until="load")


@contextmanager
def tab(browser: Browser) -> Iterator[Tab]:
    """A tab that shares nothing with another one; its user prefers light pages."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    tab = Tab(context.new_page())
    tab.page.on("request", lambda request: tab.requests.append(request.url))
    tab.page.on("pageerror", lambda error: tab.wrong.append(str(error)))
    tab.page.on("console", lambda message: tab.wrong.append(message.text))
    tab.page.on("dialog", lambda dialog: tab.wrong.append(dialog.message))
    yield tab
    context.close()
