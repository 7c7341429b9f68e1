"""The pages: whole, linked, escaped, and readable without a network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sample_runs
from msgspec import structs
from msgspec.structs import replace

from fencepost.reporting import LatencyRow, Promises, ReportedRun
from fencepost.testing import Outcome
from fencepost_reports.making import summary
from fencepost_reports.one_run.causes import UNSEEN
from fencepost_reports.one_run.run import RunSource, run_tables
from fencepost_reports.one_run.tables import ProcessRow, RunSummary, RunTables
from fencepost_reports.pages import lanes
from fencepost_reports.pages.render import VERDICTS, report_pages, run_pages
from fencepost_reports.pages.statistics import Statistics

CORRELATION = [
    {
        "what": "violation", "fault": fault, "type": type_, "windows": 9, "occurred": 3,
        "failed": 3, "both": 2, "support": 2 / 9, "confidence": 2 / 3, "lift": 2.0,
        "elsewhere": 1 / 6, "low": 0.21, "high": 0.94, "differs": True,
    }
    for fault, type_ in (("isolate", None), (None, "broker lost: x"), ("isolate", "broker lost: x"))
]  # fmt: skip


@dataclass(frozen=True)
class Written:
    """A report over the sample runs: its index, and each run's page."""

    index: Path
    pages: Mapping[str, Path]
    runs: Sequence[RunTables]


@pytest.fixture(scope="module")
def written(
    runs: Mapping[str, Path], promises: Promises, tmp_path_factory: pytest.TempPathFactory
) -> Written:
    out = tmp_path_factory.mktemp("pages")
    made = [run_tables(RunSource(name, str(path)), promises) for name, path in runs.items()]
    known = {"night": ("lamps-flicker",)}
    marked = [
        structs.replace(
            one,
            verdicts=tuple(
                structs.replace(row, known=known.get(one.about.run, ()))
                if row.clause == "ACME-1"
                else row
                for row in one.verdicts
            ),
        )
        for one in made
    ]
    stamps = [summary(one, f"row-{n}", f"runs/{n}.html") for n, one in enumerate(marked)]
    (out / "runs").mkdir()
    (out / "timelines").mkdir()
    for stamp, one in zip(stamps, marked, strict=True):
        pages = run_pages(one, index="../report.html")
        (out / stamp.page).write_text(pages.page)
        (out / "timelines" / Path(stamp.page).name).write_text(pages.still)
    lost = RunSummary(outcome=ReportedRun(run="lost<b>", refused="it does not answer"))
    of_all = report_pages([*stamps, lost], Statistics(CORRELATION), promises)
    (out / "report.html").write_text(of_all.index)
    (out / "clauses").mkdir()
    for place, text in of_all.clauses.items():
        (out / place).write_text(text)
    paths = {stamp.outcome.run: out / stamp.page for stamp in stamps}
    return Written(out / "report.html", paths, marked)


class Elements(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def every(written: Written) -> Sequence[Path]:
    clauses = sorted(written.index.parent.glob("clauses/*.html"))
    return [written.index, *written.pages.values(), *clauses]


def test_each_page_is_whole_and_needs_no_network(written: Written) -> None:
    for page in every(written):
        text = page.read_text()
        assert "src=" not in text
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}
        tags = {tag for tag, _ in Elements(text).found}
        assert tags & {"link", "img", "iframe", "object", "base"} == set()


def test_every_link_leads_somewhere(written: Written) -> None:
    for page in every(written):
        found = Elements(page.read_text()).found
        ids = [a["id"] for _, a in found if a.get("id")]
        assert len(ids) == len(set(ids))
        hrefs = {a["href"] for tag, a in found if tag in {"a", "use"} and a.get("href")}
        jumps = {f"#{a['data-with']}" for tag, a in found if tag == "a" and a.get("data-with")}
        within = {href for href in hrefs | jumps if href and href.startswith("#")}
        assert within - {f"#{name}" for name in ids} == set()
        beside = {href for href in hrefs if href and not href.startswith("#")}
        assert all((page.parent / href).exists() for href in beside)


def test_the_index_leads_to_each_run(written: Written) -> None:
    hrefs = {a.get("href") for tag, a in Elements(written.index.read_text()).found if tag == "a"}
    assert {f"runs/{page.name}" for page in written.pages.values()} <= hrefs


def test_the_index_leads_to_the_page_of_each_clause(written: Written) -> None:
    hrefs = {a.get("href") for tag, a in Elements(written.index.read_text()).found if tag == "a"}
    verdicts = [row for run in written.runs for row in run.verdicts]
    clauses = {row.clause for row in verdicts if row.verdict != Outcome.NOT_APPLICABLE}
    assert {f"clauses/{clause}.html" for clause in clauses} <= hrefs
    foreign = {row.clause for row in verdicts} - clauses
    assert foreign
    assert hrefs.isdisjoint({f"clauses/{clause}.html" for clause in foreign})
    page = (written.index.parent / "clauses" / "ACME-1.html").read_text()
    assert '<h2 id="clause">ACME-1</h2>' in page
    assert "acme_lamps." in page
    assert '<a href="../runs/' in page


def test_the_index_names_what_could_not_be_read(written: Written) -> None:
    assert '<span class="id">lost&lt;b&gt;</span>: it does not answer' in written.index.read_text()


def test_the_page_of_a_run_shows_its_clauses_and_failures(written: Written) -> None:
    for run in written.runs:
        text = written.pages[run.about.run].read_text()
        assert f'<h2 id="run">{run.about.run}</h2>' in text
        shown = [row for row in run.verdicts if row.verdict != Outcome.NOT_APPLICABLE or row.reason]
        assert all(row.clause in text for row in shown)
        violations = [row for row in run.failures if row.what == "violation"]
        assert text.count('<div class="failure">') == len(violations)
        assert text.count('class="mark violation" href="#m-violation" data-t') == len(violations)
    assert "broker-1#1 went from ACTIVE to FENCED" in re.sub(
        r": ", " ", written.pages["defect"].read_text()
    )


def test_the_page_of_a_run_says_what_clients_felt(written: Written) -> None:
    run = next(one for one in written.runs if any(row.missed for row in one.silences))
    silence = structs.replace(run.silences[0], from_ns=0, to_ns=7_250_000_000)
    latency = LatencyRow(
        fault_id="kill-77",
        part="after",
        what="produce",
        count=9,
        succeeded=8,
        median_ns=1_500_000,
        slow_ns=12_000_000,
        longest_ns=21_000_000,
    )
    nothing = structs.replace(latency, part="during", succeeded=0, median_ns=-1)
    page = run_pages(structs.replace(run, silences=(silence,), latencies=(latency, nothing))).page
    assert f"The longest time without a success was 7.25 s: {silence.what}" in page
    assert "<td>kill-77</td><td>after</td><td>produce</td>" in page
    assert page.count(">0.021 s<") == 1
    quiet = run_pages(structs.replace(run, silences=(), latencies=())).page
    assert "What clients felt" not in quiet


def test_every_sort_of_failure_shows_its_candidates_with_the_reason_and_the_base_rate(
    written: Written,
) -> None:
    run = next(one for one in written.runs if one.about.run == "fenced")
    assert {row.what for row in run.failures} >= {"operation", "silence"}
    test = structs.replace(run.failures[0], what="test", says="it <b>failed</b>")
    page = run_pages(structs.replace(run, failures=(*run.failures, test))).page
    shown = [row for row in (*run.failures, test) if len(row.candidates) > 1]
    assert page.count('<details class="candidates">') == len(shown) > 2
    for one in (one for row in shown for one in row.candidates if one.position >= 0):
        assert f'<td>{one.how}</td><td class="n">{100 * one.sure:.0f} %</td>' in page
        assert f'<td class="n">{100 * one.chance:.0f} %</td>' in page
    assert "<h4>The test failed</h4>" in page
    assert "it &lt;b&gt;failed&lt;/b&gt;" in page


def test_the_page_of_a_run_with_faults_has_the_command_that_injects_them_again(
    written: Written,
) -> None:
    for run in written.runs:
        text = written.pages[run.about.run].read_text()
        command = f"<code>fencepost replay {run.about.path}</code>"
        assert (command in text) == bool(run.faults)
    assert any(run.faults for run in written.runs)


def test_a_failure_and_its_explanation_name_the_recorded_events(
    written: Written, runs: Mapping[str, Path]
) -> None:
    run = next(one for one in written.runs if one.about.run == "defect")
    text = written.pages["defect"].read_text()
    lines = (runs["defect"] / "history.ndjson").read_bytes().splitlines()
    codec = sample_runs.CODEC
    violations = [row for row in run.failures if row.what == "violation"]
    assert violations
    for row in violations:
        found = codec.decode(lines[row.position])
        assert (found.process, found.node_seq) == (row.process, row.node_seq)
        assert f'<span class="mono">history.ndjson:{row.position + 1}</span>' in text
        assert f'<span class="mono">history.ndjson:{row.explained_by + 1}</span>' in text
    first = run.shown[0]
    assert f"(history.ndjson:{first.position + 1})" in text


def test_states_of_a_run_are_named_in_its_legend(written: Written) -> None:
    text = written.pages["fenced"].read_text()
    assert '<i style="background:var(--held-0)"></i>controller' in text
    assert '<i style="background:var(--held-1)"></i>active' in text
    assert "broker-1#1 was fenced (broker 1, epoch 10) from" in text


def test_a_failure_that_no_loss_explains_says_so(written: Written) -> None:
    assert UNSEEN in written.pages["broken"].read_text()


def test_a_known_finding_is_distinguished_from_a_new_one(written: Written) -> None:
    text = written.pages["night"].read_text()
    assert text.count("Known finding of this system: lamps-flicker.") == 1
    assert text.count("as known: lamps-flicker") == 1


def test_event_sentences_are_text_and_never_markup(written: Written) -> None:
    text = written.pages["night"].read_text() + written.pages["broken"].read_text()
    assert "a was switched &lt;on&gt; twice" in text
    assert "switched <on>" not in text


def test_control_characters_of_a_run_are_escaped_in_its_page(
    written: Written,
) -> None:
    first = written.runs[0]
    hostile = "seen \x1b]0;title\x07 and \u202egnp.exe and \ud800 \x00"
    verdicts = tuple(structs.replace(row, reason=hostile) for row in first.verdicts)
    about = structs.replace(first.about, run=hostile)
    text = run_pages(structs.replace(first, about=about, verdicts=verdicts)).page
    assert "seen \\x1b]0;title\\x07 and \\u202egnp.exe and \\ud800 \\x00" in text
    assert not set("\x00\x07\x1b\u202e") & set(text)


def test_verdicts_differ_in_sign_and_words_not_only_in_colour() -> None:
    assert len(VERDICTS) == len({sign for sign, _ in VERDICTS.values()})
    assert len(VERDICTS) == len({words for _, words in VERDICTS.values()})


def test_a_still_timeline_needs_no_script(written: Written) -> None:
    stills = sorted(written.index.parent.glob("timelines/*.html"))
    assert len(stills) == len(written.runs)
    for still in stills:
        text = still.read_text()
        assert "<script" not in text
        svg = re.search(r'<svg class="timeline".*?</svg>', text, re.DOTALL)
        assert svg is not None
        assert ElementTree.fromstring(svg[0]).tag.endswith("svg")


def test_a_long_run_draws_the_states_of_nodes_and_the_longest_and_says_how_many_it_leaves_out(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = [one for one in written.runs if one.about.run == "defect"]
    assert "further states" not in run_pages(run).page
    others = [span for span in run.spans if not span.own]
    longest = max(others, key=lambda span: span.to_ns - span.from_ns)
    own = [span for span in run.spans if span.own]
    monkeypatch.setattr(lanes, "STATES", len(own) + 1)
    assert {*lanes.drawn(run)} == {*own, longest}
    assert f"{len(others) - 1} further states are not drawn" in run_pages(run).page


def test_many_clients_of_one_kind_share_a_lane_and_few_do_not() -> None:
    def client(name: str) -> ProcessRow:
        return ProcessRow(
            process=f"clients/{name}#1",
            slot="clients",
            role="client",
            node_id=-1,
            from_ns=0,
            to_ns=1,
            events=1,
        )

    probes = [client(f"probe-{number}") for number in range(1, lanes.CLIENTS_APART + 2)]
    readers = [client("reader-1"), client("reader-2")]
    node = replace(client("x"), process="broker-1#1", slot="broker-1", role="broker")
    assert list(lanes._grouped([node, *probes, *readers])) == [
        "broker-1#1",
        "clients/probe-* (7)",
        "clients/reader-1#1",
        "clients/reader-2#1",
    ]
    assert len(lanes._grouped(probes[1:])) == lanes.CLIENTS_APART
