"""The report that Allure 3 makes of a run's results, as a reader sees it in a browser."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copy
from threading import Thread

import pytest
from playwright.sync_api import Page, expect
from tests import browser_bench

from fencepost import cache_folder

pytestmark = [pytest.mark.tool, pytest.mark.nightly]
pytest_plugins = ["pytester"]

ALLURE = "3.18.0"
TEST = """
    import pytest

    @pytest.mark.clause("QC-17")
    def test_a_fenced_broker_serves_no_client(cluster, faults, clients):
        clients.produce("orders", acks="all")
        victim = cluster.leader("orders", 0)
        with faults.cut_from_controllers(victim):
            cluster.eventually(victim.fenced)
            clients.fetch_directly(victim, "orders", 0)
        cluster.eventually(victim.active)
"""


def allure() -> str:
    """The program of Allure 3, which npm installs once for this user."""
    npm = browser_bench.program("npm")
    folder = cache_folder(os.environ) / "allure" / ALLURE
    program = folder / "node_modules" / ".bin" / "allure"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = [npm, "install", "--no-audit", "--no-fund", "--no-save", f"allure@{ALLURE}"]
        subprocess.run(wanted, cwd=folder, check=True, timeout=300, capture_output=True)
    return str(program)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which a browser finds the files of the folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def judged(pytester: pytest.Pytester, seed: int) -> None:
    """Runs the test on a broken cluster; its results are in `allure-results`."""
    tried = pytester.runpytest_subprocess(
        "--alluredir=allure-results",
        "--clean-alluredir",
        "--fencepost-runtime=simulated",
        "--fencepost-defects=serves-without-lease",
        f"--fencepost-seed={seed}",
    )
    tried.assert_outcomes(failed=1)


def check_failure(page: Page, seed: int) -> None:
    """The open page of the failure has what the run found."""
    for words in ("Category: A promise is violated", "fencepost.model.errors.Violation: QC-17 is"):
        expect(page.get_by_text(words).first).to_be_visible()
    for label in ("reference/quorum", "simulated", str(seed)):
        expect(page.get_by_text(label, exact=True).last).to_be_visible()
    for step in ("cut_from_controllers of broker-1", "3 links answered within"):
        expect(page.get_by_text(step).last).to_be_visible()
    page.get_by_text("explanation", exact=True).click()
    expect(page.locator("code").get_by_text("<- this broke it")).to_be_visible()
    page.get_by_text("timeline", exact=True).click()
    expect(page.frame_locator("iframe").locator("svg.timeline")).to_be_visible()


def test_a_reader_finds_clause_fault_explanation_and_history_of_a_failure(
    pytester: pytest.Pytester,
) -> None:
    program = allure()
    pytester.makepyfile(test_fences=TEST)
    copy(Path(__file__).parent / "allurerc.mjs", pytester.path)
    for seed in (1, 2):
        judged(pytester, seed)
        made = [program, "generate", "allure-results", "--output", f"report-{seed}"]
        subprocess.run(made, cwd=pytester.path, check=True, timeout=120, capture_output=True)
    with (
        served(pytester.path / "report-2") as address,
        browser_bench.browser() as browser,
        browser_bench.tab(browser) as tab,
    ):
        tab.page.goto(address)
        tab.page.get_by_text("test_a_fenced_broker_serves_no_client").first.click()
        check_failure(tab.page, seed=2)
        # The earlier result of the same test, though its seed was another one.
        expect(tab.page.locator("button", has_text="History")).to_have_text("History1")
