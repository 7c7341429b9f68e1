"""The job and its page, over a handful of runs that one Spark session reads once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from operator import itemgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import chaos
import pytest
from acme_lamps import CLAUSES, RULES, LampSwitched
from msgspec import Struct, structs
from pyarrow import parquet

import fencepost as f
import fencepost_kafka as k
from fencepost.history.run_folder import RunSlot, write_whole
from fencepost.judging.judge import write_verdicts
from fencepost.reporting import Judgement, RunFolder, RunInfo, judge, load, read
from fencepost.testing import HistoryBuilder
from fencepost_reports import reading
from fencepost_reports.job import Tables, correlate, session
from fencepost_reports.judging import Promises
from fencepost_reports.render import VERDICTS, render
from fencepost_reports.schema import EventTable

pytestmark = pytest.mark.tool

SYSTEM, PLANE = "reference/quorum", "quorum"
PLANES = {SYSTEM: PLANE}
SLOTS = (
    *(RunSlot(f"controller-{n}", "controller", 100 + n, n, False) for n in (1, 2, 3)),
    *(RunSlot(f"broker-{n}", "broker", n, 3 + n, False) for n in (1, 2, 3)),
)
KINDS: tuple[type[Struct], ...] = (LampSwitched, *k.KINDS)
CODEC = f.Codec(KINDS)


def info(run: str, defects: tuple[str, ...] = ()) -> RunInfo:
    return RunInfo(
        run=run,
        system=SYSTEM,
        runtime="world",
        seed=1,
        counts={"controller": 3, "broker": 3},
        settings={},
        defects=defects,
        slots=SLOTS,
        versions={},
        started_at="2026-01-01T00:00:00Z",
        clock_origin_ns=0,
    )


def write(root: Path, run: str, events: Sequence[f.Event], defects: tuple[str, ...] = ()) -> Path:
    """A run folder that holds this history; `verdicts.json` is not among what it has."""
    folder = RunFolder.create(root / run)
    folder.write_info(info(run, defects))
    folder.history.write_bytes(b"".join(CODEC.encode(event) for event in events))
    return folder.path


def ended(history: HistoryBuilder) -> Sequence[f.Event]:
    history.add("harness", f.RunEnded(True))
    return history.events()


def lamps(*switched: tuple[str, bool]) -> HistoryBuilder:
    history = HistoryBuilder("lamps")
    for lamp, on in switched:
        history.add("harness", LampSwitched(lamp, on, "here"))
    return history


def fenced() -> HistoryBuilder:
    """A broker is cut off, fenced, replaced as leader, and comes back; clients suffer meanwhile."""
    h = HistoryBuilder("fenced")
    h.add("controller-1#1", k.ControllerElected(1, 0, 0))
    h.add("controller-1#1", k.BrokerCommitted(1, 1, 10, False, "a"))
    h.add("controller-1#1", k.PartitionCommitted(2, "orders", 0, 1, 5, (1, 2), (1, 2)))
    h.add("broker-2#1", k.PartitionCommitted(2, "orders", 0, 1, 5, (1, 2), (1, 2)))
    h.add("broker-1#1", k.BrokerStateChanged(1, "FENCED", "ACTIVE", 10, "unfenced"))
    struck = h.now_ns
    h.after(5).add(
        "harness", f.FaultInjected("fault-1", "isolate", ("broker-1",), True, "no answer", struck)
    )
    h.add("clients/p#1", k.ProduceInvoked("op-1", "orders", 0, -1))
    h.add("controller-1#1", k.LeaseExpired(1, 10, 0, 3, 3000, 1))
    h.add("broker-1#1", k.BrokerStateChanged(1, "ACTIVE", "FENCED", 10, "lease_expired"))
    h.add("clients/p#1", k.ProduceCompleted("op-1", "orders", 0, -1, "unknown", -1, "TIMED_OUT"))
    h.add("controller-1#1", k.BrokerCommitted(3, 1, 10, True, "a"))
    h.add("controller-1#1", k.PartitionCommitted(4, "orders", 0, 2, 6, (2,), (1, 2)))
    h.add("broker-1#1", k.HeartbeatRefused(1, 10, "STALE_BROKER_EPOCH", 101))
    h.add("broker-1#1", k.HeartbeatRefused(1, 10, "NOT_CONTROLLER", 102))
    h.add("harness", f.FaultHealed("fault-1", True, "answered"))
    h.add("controller-1#1", k.BrokerCommitted(5, 1, 11, False, "a"))
    h.add("controller-1#1", k.PartitionCommitted(6, "orders", 0, 2, 7, (1, 2), (1, 2)))
    h.add("broker-1#1", k.BrokerStateChanged(1, "FENCED", "ACTIVE", 11, "unfenced"))
    h.add("clients/p#1", k.ProduceInvoked("op-2", "orders", 0, -1))
    h.add("clients/p#1", k.ProduceCompleted("op-2", "orders", 0, -1, "failed", -1, "NOT_LEADER"))
    h.add("harness", f.FaultInjected("fault-2", "pause", ("broker-2#1",), False, "it still ran"))
    return h


NIGHT = (("a", True), ("b", True), ("a", True), ("b", False), ("c", True), ("a", False))
BROKEN = (("a", True), ("a", False), ("broken", True), ("a", True), ("a", False), ("a", False))


DEFECT = ("serves-without-lease",)


def cut_from_controllers(defects: tuple[str, ...]) -> Sequence[f.Event]:
    """The history of a whole cluster of bare cores, of which one broker loses its controllers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chaos, "STRIKES", chaos.STRIKES[:1])
        return chaos.chaos(2, defects)[0]


def folders(root: Path) -> dict[str, Path]:
    """The runs of this module: a clean one, odd ones, and one of a broken cluster."""
    made = {
        "night": write(root, "night", ended(lamps(*NIGHT))),
        "broken": write(root, "broken", ended(lamps(*BROKEN))),
        "nameless": write(root, "nameless", ended(lamps(("a", True), ("", True), ("a", False)))),
        "dark": write(root, "dark", ended(lamps())),
        "unended": write(root, "unended", lamps(*NIGHT).events()),
        "many": write(root, "many", ended(lamps(*(((f"l{n}", True)) for n in range(30))))),
        "fenced": write(root, "fenced", ended(fenced())),
        "defect": write(root, "defect", cut_from_controllers(DEFECT), DEFECT),
    }
    torn = made["torn"] = write(root, "torn", ended(lamps(*NIGHT)))
    lines = RunFolder(torn).history.read_bytes().splitlines(keepends=True)
    lines[2:3] = [b'{"not": "an event"}\n']
    write_whole(RunFolder(torn).history, b"".join(lines) + b'{"run": "cut sho')
    return made


@pytest.fixture(scope="module")
def promises() -> Promises:
    plugins = load()
    clauses = {**plugins.clauses, **CLAUSES}
    return Promises((*plugins.rules, *RULES), clauses, (*plugins.event_kinds, LampSwitched))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return folders(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def tables(
    runs: dict[str, Path], promises: Promises, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tables]:
    judged = locally(runs["night"], promises).verdicts
    known = structs.replace(judged["ACME-1"], known=("lamps-flicker",))
    write_verdicts(runs["night"] / "verdicts.json", {**judged, "ACME-1": known})
    with session() as started:
        out = tmp_path_factory.mktemp("out")
        found = reading.sources(list(runs.values()))
        yield correlate(started, [reading.described(s, PLANES) for s in found], promises, out)


@pytest.fixture(scope="module")
def page(tables: Tables, promises: Promises) -> Path:
    return render(tables, EventTable.of(promises.kinds), tables.folder)


def table(tables: Tables, name: str) -> list[dict[str, Any]]:
    """All rows of a table, read as anybody reads Parquet."""
    return parquet.read_table(tables.folder / f"{name}.parquet").to_pylist()


def rows(tables: Tables, name: str, run: str, *order: str) -> list[dict[str, Any]]:
    found = [row for row in table(tables, name) if row["run"] == run]
    return sorted(found, key=itemgetter(*order)) if order else found


def locally(folder: Path, promises: Promises) -> Judgement:
    reading = read(RunFolder(folder), f.Codec(promises.kinds))
    return judge(reading, promises.rules, promises.clauses, lambda: reading.end, PLANE)


# ----------------------------------------------------------------------------------- the job


@pytest.mark.parametrize(
    "run",
    ["night", "broken", "nameless", "dark", "unended", "many", "torn", "fenced", "defect"],
)
def test_a_key_at_a_time_the_verdicts_are_the_same(
    tables: Tables, promises: Promises, runs: Mapping[str, Path], run: str
) -> None:
    there = {row.pop("clause"): row for row in rows(tables, "verdicts", run)}
    here = locally(runs[run], promises).verdicts
    assert there.keys() == here.keys()
    for clause, verdict in here.items():
        spark = there[clause]
        kept = [
            (v["at"], v["witness"], v["message"], v["because"]) for v in spark.pop("violations")
        ]
        assert spark == {
            "run": run,
            "verdict": verdict.verdict,
            "exercised": verdict.exercised,
            "witness": verdict.evidence,
            "sentence": verdict.sentence,
            "reason": verdict.reason,
            "violated": verdict.violated,
        }
        assert kept == [
            (ref(v.at), v.evidence, v.message, [ref(c) for c in v.because])
            for v in verdict.violations
        ]


def ref(cause: f.Cause) -> dict[str, object]:
    return {"process": cause.process, "seq": cause.seq, "request": cause.request}


def test_the_runs_of_this_module_come_to_every_verdict(tables: Tables) -> None:
    """Or the test above would compare less than it seems to."""
    assert {row["verdict"] for row in table(tables, "verdicts")} == set(VERDICTS)
    assert {row["finding"] for row in table(tables, "findings")} == {
        *("exercised", "violated", "undecided", "crashed")
    }


def test_every_event_is_a_row_that_says_the_same(
    tables: Tables, promises: Promises, runs: Mapping[str, Path]
) -> None:
    flat = EventTable.of(promises.kinds)
    for run in ("fenced", "torn"):
        told = [flat.event(row) for row in rows(tables, "events", run, "position")]
        read_here = list(read(RunFolder(runs[run]), f.Codec(promises.kinds)))
        assert [(e.process, e.node_seq, e.at_ns, e.cause, e.body) for e in told] == [
            (e.process, e.node_seq, e.at_ns, e.cause, e.body) for e in read_here
        ]


def test_a_damaged_run_is_read_and_its_damage_is_named(tables: Tables) -> None:
    (torn,) = rows(tables, "runs", "torn")
    assert not torn["complete"]
    assert any("middle of an event" in d for d in torn["damage"])
    assert any("is not an event" in d for d in torn["damage"])
    (fine,) = rows(tables, "runs", "night")
    assert (fine["complete"], fine["damage"], fine["events"]) == (True, [], len(NIGHT) + 1)


def test_fault_windows_last_from_the_strike_to_the_healing(tables: Tables) -> None:
    first, second = rows(tables, "fault_windows", "fenced", "fault_id")
    events = {row["kind"]: row for row in rows(tables, "events", "fenced", "position")}
    (run,) = rows(tables, "runs", "fenced")
    healed = events["fault.healed"]["at_ns"]
    assert (first["from_ns"], first["to_ns"]) == (1_005_000_000, healed)
    assert (first["targets"], first["receipt"], first["healed"]) == (["broker-1"], True, True)
    assert second["to_ns"] == run["run_ended_ns"]
    assert (second["receipt"], second["healed"], second["heal_receipt"]) == (False, False, False)


def test_epochs_and_fences_are_told_once_each(tables: Tables) -> None:
    told = rows(tables, "authority", "fenced", "position", "type")
    columns = ("type", "effect", "broker", "partition", "was", "epoch")
    assert [tuple(row[c] for c in columns) for row in told] == [
        ("new controller", "takes", None, None, None, 1),
        ("new broker epoch", "takes", 1, None, None, 10),
        ("new leader", "takes", None, 0, None, 5),
        ("broker became active", "gives", 1, None, None, 10),
        ("lease expired", "takes", 1, None, None, 10),
        ("broker fenced itself", "takes", 1, None, None, 10),
        ("broker fenced", "takes", 1, None, None, 10),
        ("new leader", "takes", None, 0, 5, 6),
        ("heartbeat refused", "enforces", 1, None, None, 10),
        ("broker unfenced", "gives", 1, None, None, 11),
        ("new broker epoch", "takes", 1, None, 10, 11),
        ("ISR grew", "gives", None, 0, 6, 7),
        ("broker became active", "gives", 1, None, None, 11),
    ]


def test_a_failed_operation_is_joined_to_its_fault_and_to_its_leader_s_fence(
    tables: Tables,
) -> None:
    failed = rows(tables, "failures", "fenced", "position")
    first, second = (row for row in failed if row["what"] == "client")
    assert (first["outcome"], first["fault_ids"]) == ("unknown", ["fault-1"])
    assert first["explained_type"] == "broker fenced itself"
    assert first["began_ns"] < first["explained_at_ns"] < first["at_ns"]
    assert (second["outcome"], second["fault_ids"]) == ("failed", [])
    assert second["explained_type"] == "new leader"


def test_a_violation_is_explained_by_the_fence_that_its_rule_names(tables: Tables) -> None:
    broken = [r for r in rows(tables, "failures", "defect") if r["clause"] == "QC-17"]
    assert broken
    for row in broken:
        assert (row["explained_type"], row["how"]) == ("broker fenced itself", "named by the rule")
        assert row["explained_by"] < row["position"]


def test_each_moment_of_a_run_is_in_one_window(tables: Tables) -> None:
    (run,) = rows(tables, "runs", "fenced")
    first, second, third = rows(tables, "strike_windows", "fenced", "from_ns")
    assert (first["fault"], second["fault"], third["fault"]) == (None, "isolate", "pause")
    assert first["from_ns"] == run["run_began_ns"]
    assert first["until_ns"] == second["from_ns"]
    assert second["until_ns"] == third["from_ns"]
    assert third["until_ns"] == run["run_ended_ns"] + 1
    assert ("lease expired" in second["types"], second["failed"]) == (True, ["client", "violation"])
    assert (third["types"], third["failed"]) == ([], [])


def test_what_goes_with_failure_is_counted_in_windows(tables: Tables) -> None:
    found = table(tables, "correlation")
    windows = len(folders_of(tables)) + len(table(tables, "fault_windows"))
    assert {row["windows"] for row in found} == {windows}
    paused = [r for r in found if r["fault"] == "pause" and r["type"] is None]
    assert {(r["what"], r["occurred"], r["both"], r["lift"]) for r in paused} == {
        ("violation", 1, 0, 0.0),
        ("client", 1, 0, 0.0),
    }
    (isolated,) = (
        r
        for r in found
        if (r["what"], r["fault"], r["type"]) == ("client", "isolate", "lease expired")
    )
    assert (isolated["occurred"], isolated["both"], isolated["confidence"]) == (1, 1, 1.0)
    assert isolated["support"] == pytest.approx(1 / windows)
    assert isolated["lift"] == pytest.approx(windows / isolated["failed"])


def folders_of(tables: Tables) -> set[str]:
    return {row["run"] for row in table(tables, "runs")}


# ---------------------------------------------------------------------------------- the page


class Elements(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_is_whole_and_needs_no_network(page: Path) -> None:
    text = page.read_text()
    assert "src=" not in text
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    tags = {tag for tag, _ in Elements(text).found}
    assert tags & {"link", "img", "iframe", "object", "base"} == set()


def test_every_link_on_the_page_leads_somewhere(page: Path) -> None:
    found = Elements(page.read_text()).found
    ids = [a["id"] for _, a in found if a.get("id")]
    assert len(ids) == len(set(ids))
    hrefs = {a["href"] for tag, a in found if tag in {"a", "use"} and a.get("href")}
    jumps = {f"#{a['data-with']}" for tag, a in found if tag == "a" and a.get("data-with")}
    assert any(href.startswith("#r") and "-v" in href for href in hrefs if href)
    assert (hrefs | jumps) - {f"#{name}" for name in ids} == set()


def test_the_page_shows_each_run_clause_and_failure(page: Path, tables: Tables) -> None:
    text = page.read_text()
    for run in folders_of(tables):
        assert f'<h2 id="run-{number(text, run)}-name">{run}</h2>' in text
    for row in table(tables, "verdicts"):
        assert row["clause"] in text
    assert text.count('class="mark violation"') == text.count('<div class="failure">') + text.count(
        '<use class="mark violation"'
    )
    assert "broker-1#1 went from ACTIVE to FENCED" in text


def test_the_page_tells_a_known_finding_from_a_new_one(page: Path) -> None:
    text = page.read_text()
    assert text.count("Known of this system, and no new finding: lamps-flicker.") == 1
    assert text.count("as known: lamps-flicker") == 1


def number(text: str, run: str) -> str:
    found = re.search(rf'<h2 id="run-(\d+)-name">{run}</h2>', text)
    assert found is not None, run
    return found[1]


def test_what_events_say_is_text_and_never_markup(page: Path) -> None:
    text = page.read_text()
    assert "a was switched &lt;on&gt; twice" in text
    assert "switched <on>" not in text


def test_verdicts_differ_in_sign_and_words_not_only_in_colour() -> None:
    assert len(VERDICTS) == len({sign for sign, _ in VERDICTS.values()})
    assert len(VERDICTS) == len({words for _, words in VERDICTS.values()})


def test_a_still_timeline_needs_no_script(page: Path, tables: Tables) -> None:
    stills = sorted(page.parent.glob("timeline-*.html"))
    assert len(stills) == len(folders_of(tables))
    for still in stills:
        text = still.read_text()
        assert "<script" not in text
        svg = re.search(r'<svg class="timeline".*?</svg>', text, re.DOTALL)
        assert svg is not None
        assert ElementTree.fromstring(svg[0]).tag.endswith("svg")
