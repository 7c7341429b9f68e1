"""The pages in a real browser: they load alone, obey no text of a run, and follow the keyboard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic

import pytest
import sample_runs
from acme_lamps import LampSwitched
from msgspec import structs
from playwright.sync_api import Browser
from tests import browser_bench
from tests.browser_bench import Tab

import fencepost as f
import fencepost_kafka as k
from fencepost.reporting import Promises, ReportedRun
from fencepost.testing import HistoryBuilder
from fencepost_reports.making import summary
from fencepost_reports.one_run.run import RunSource, run_tables
from fencepost_reports.one_run.tables import RunTables
from fencepost_reports.pages.render import report_pages, run_pages
from fencepost_reports.pages.statistics import Statistics

pytestmark = pytest.mark.tool

MOST_SECONDS = 2
BITES = (
    "<script>window.bitten = 1</script>",
    "</script><script>window.bitten = 2</script>",
    "</title><img src=x onerror='window.bitten = 3'>",
    '" onmouseover="window.bitten = 4" autofocus onfocus="window.bitten = 5" x="',
    "' onload='window.bitten = 6' x='",
    "javascript:window.bitten=7",
    "{{ 7 * 7 }}<svg onload=window.bitten=8>",
)
"""Texts that a page would obey if it wrote any of them as markup."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_bench.browser() as started:
        yield started


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with browser_bench.tab(browser) as opened:
        yield opened


def shown(tab: Tab) -> str:
    """The part of the timeline that is shown, in words."""
    return tab.page.locator(".range").inner_text()


def hostile_run(root: Path) -> Path:
    """A run in which every text that a node, client, test or fault chose is a bite."""
    h = HistoryBuilder("bites")
    h.add("harness", f.TestStarted(nodeid=BITES[0], clauses=("ACME-1",)))
    for n, bite in enumerate(BITES):
        h.add("broker-1#1", LampSwitched(bite, on=True, offset=bite))
        h.add("broker-1#1", LampSwitched(bite, on=True, offset=bite))
        h.add(
            "harness",
            f.FaultInjected(
                fault_id=f"fault-{n}", fault=bite, targets=(bite,), receipt=True, evidence=bite
            ),
        )
        asked = k.ProduceInvoked(operation=f"op-{n}", topic=bite, partition=0, acks=-1)
        h.add("clients/p#1", asked)
        h.add(
            "clients/p#1",
            structs.replace(sample_runs.without_an_offset(f"op-{n}", "failed", bite), topic=bite),
        )
        taken = sample_runs.partition(2 + n, leader=1 + n % 2, epoch=5 + n, isr=(1, 2))
        h.add("controller-1#1", structs.replace(taken, topic=bite))
    return sample_runs.write(root, "bites", sample_runs.ended(h))


@pytest.fixture(scope="module")
def pages(
    runs: Mapping[str, Path], promises: Promises, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """The index, the pages of three clauses, and those of a hostile run and of two others."""
    root = tmp_path_factory.mktemp("browser")
    folders = {"bites": hostile_run(root), "defect": runs["defect"], "fenced": runs["fenced"]}
    made = [run_tables(RunSource(name, str(path)), promises) for name, path in folders.items()]
    return written(root, made, promises)


def written(root: Path, made: Sequence[RunTables], promises: Promises) -> Mapping[str, Path]:
    for folder in ("runs", "clauses", "timelines"):
        (root / folder).mkdir()
    found = {}
    summaries = []
    for one in made:
        name = one.about.run
        # A plugin chooses the sentences of its clauses, and a folder's name is anybody's.
        summaries.append(summary(one, name, f"runs/{name}.html"))
        both = run_pages(one, index="../report.html")
        found[name] = root / "runs" / f"{name}.html"
        found[name].write_text(both.page)
        found[f"{name} still"] = root / "timelines" / f"{name}.html"
        found[f"{name} still"].write_text(both.still)
    refused = structs.replace(
        summaries[0], about=None, outcome=ReportedRun(run=BITES[2], refused=BITES[1])
    )
    of_all = report_pages([*summaries, refused], Statistics(), promises)
    for clause in ("ACME-1", "QC-17", "RP-06"):
        place = f"clauses/{clause}.html"
        found[place] = root / place
        found[place].write_text(of_all.clauses[place])
    found["index"] = root / "report.html"
    found["index"].write_text(of_all.index)
    return found


def test_no_page_asks_for_anything_or_fails(tab: Tab, pages: Mapping[str, Path]) -> None:
    for path in pages.values():
        tab.open(path)
        assert tab.requests == [path.as_uri()]
        assert tab.wrong == []


def test_no_text_of_a_run_is_obeyed(tab: Tab, pages: Mapping[str, Path]) -> None:
    for name in ("bites", "bites still", "index", "clauses/ACME-1.html"):
        tab.open(pages[name])
        if name == "bites":
            # Each text is on the page, also those that only a script shows.
            text = tab.page.locator("body").text_content() or ""
            assert all(bite in text for bite in BITES)
            tab.page.locator("svg.timeline").focus()
            for _ in range(40):
                tab.page.keyboard.press("n")
            for chooser in tab.page.locator("select[data-scopes] option").all_inner_texts():
                tab.page.locator("select[data-scopes]").select_option(label=chooser)
        assert tab.page.evaluate("window.bitten") is None
        links = tab.page.eval_on_selector_all("a[href]", "all => all.map(one => one.protocol)")
        assert set(links) <= {"file:"}
        assert tab.wrong == []


def test_keys_move_and_zoom_the_timeline_and_choose_its_events(
    tab: Tab, pages: Mapping[str, Path]
) -> None:
    tab.open(pages["defect"])
    whole = shown(tab)
    for _ in range(40):
        tab.page.keyboard.press("Tab")
        if tab.page.evaluate("document.activeElement.matches('svg.timeline')"):
            break
    seen = [whole]
    for key in ("+", "+", "ArrowRight", "-", "0"):
        tab.page.keyboard.press(key)
        tab.page.wait_for_function(
            "before => document.querySelector('.range').innerText !== before", arg=seen[-1]
        )
        seen.append(shown(tab))
    assert len(set(seen[:-1])) == 5
    assert seen[-1] == whole
    tip = tab.page.locator(".tip")
    for key in ("n", "v"):
        tab.page.keyboard.press("Escape")
        assert tip.is_hidden()
        tab.page.keyboard.press(key)
        assert tip.is_visible()
        assert tip.inner_text()


def test_a_failure_leads_to_its_event_in_the_timeline(tab: Tab, pages: Mapping[str, Path]) -> None:
    tab.open(pages["defect"])
    jump = tab.page.locator("a.jump").first
    wanted = (jump.get_attribute("href") or "").removeprefix("#")
    jump.click()
    tab.page.wait_for_function(
        "id => document.getElementById(id)?.classList.contains('found')", arg=wanted
    )
    assert tab.page.url.endswith(f"#{wanted}")


def test_a_reader_chooses_light_or_dark(tab: Tab, pages: Mapping[str, Path]) -> None:
    def ground() -> str:
        return str(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    tab.open(pages["index"])
    light = ground()
    tab.page.emulate_media(color_scheme="dark")
    dark = ground()
    assert dark != light
    tab.page.locator(".theme").click()
    assert ground() == light


def test_the_index_of_a_thousand_runs_opens_in_two_seconds(
    tab: Tab, runs: Mapping[str, Path], promises: Promises, tmp_path: Path
) -> None:
    one = summary(run_tables(RunSource("fenced", str(runs["fenced"])), promises), "", "")
    assert one.about is not None
    many = []
    for n in range(1000):
        name = f"20260101-120000-a-test-of-some-length-{n}"
        outcome = structs.replace(one.outcome, run=name)
        about = structs.replace(one.about, run=name)
        many.append(structs.replace(one, page=f"runs/{name}.html", outcome=outcome, about=about))
    index = tmp_path / "report.html"
    index.write_text(report_pages(many, Statistics(), promises).index)
    began = monotonic()
    tab.open(index)
    assert tab.page.locator("tbody a", has_text="length-999").count()
    assert monotonic() - began < MOST_SECONDS
