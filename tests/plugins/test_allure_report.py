"""Allure: a broken promise is failed, with its verdicts and explanation attached."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from warm_start import runpytest

from fencepost import (
    Codec,
    Event,
    FaultHealed,
    FaultInjected,
    FaultTookEffect,
    NodeStarted,
    TestStarted,
)
from fencepost.testing import HistoryBuilder
from fencepost_plugins.allure_report import CATEGORIES, WrittenVerdict, table

pytestmark = pytest.mark.tool

pytest_plugins = ["pytester"]

VERDICTS = {
    "QC-09": {"verdict": "holds", "exercised": 4, "evidence": "peer", "sentence": "It <holds>."},
    "QC-17": {
        "verdict": "violated",
        "exercised": 0,
        "evidence": "client",
        "sentence": "A fenced broker serves no client.",
        "violated": 1,
        "violations": [
            {
                "at": ["broker-2#1", 7, False],
                "evidence": "client",
                "message": "it served 3 messages",
                "explanation": ["epoch 4 began"],
            }
        ],
    },
}

RUN = {
    "system": "apache/kraft@4.1.0",
    "runtime": "process",
    "seed": 7,
    "versions": {"fencepost": "0.1.0", "apache/kraft": "4.1.0"},
}


def history() -> Sequence[Event]:
    """A test in which one fault has both receipts, and one has a late one and never heals."""
    h = HistoryBuilder("run")
    h.add("harness", TestStarted(nodeid="test_it", clauses=("QC-09",)))
    h.add("broker-1#1", NodeStarted(role="broker", node_id=1))
    h.add(
        "harness",
        FaultInjected(
            fault_id="cut-1",
            fault="cut",
            targets=("broker-1", "broker-2"),
            receipt=True,
            evidence="no answer",
            began_at_ns=500_000_000,
        ),
    )
    h.add(
        "harness",
        FaultInjected(
            fault_id="pause-2", fault="pause", targets=(), receipt=False, evidence="it still ran"
        ),
    )
    h.add("harness", FaultTookEffect(fault_id="pause-2", evidence="it stands still"))
    h.add("harness", FaultHealed(fault_id="cut-1", receipt=False, evidence="no answer yet"))
    return h.events()


TEST = """
    from pathlib import Path
    from fencepost import EnvironmentFailed, Violation
    from fencepost_plugins.allure_report import fencepost_run_judged

    def make_report():
        page = Path("run") / "report" / "report.html"
        page.with_name("timeline-1.html").write_text("<svg></svg>")
        return page

    def no_java():
        raise EnvironmentFailed("Java 17 or newer is missing")

    def test_violated():
        fencepost_run_judged(Path("run"), make_report)
        raise Violation("QC-17 is violated")

    def test_violated_without_java():
        fencepost_run_judged(Path("run"), no_java)

    def test_undecided():
        raise EnvironmentFailed("broker-3 died")
"""


@pytest.fixture
def judged(pytester: pytest.Pytester) -> Path:
    """A run folder with verdicts."""
    folder = pytester.path / "run"
    (folder / "report").mkdir(parents=True)
    (folder / "verdicts.json").write_text(json.dumps(VERDICTS))
    (folder / "run.json").write_text(json.dumps(RUN))
    lines = [Codec().encode(event) for event in history()]
    (folder / "history.ndjson").write_bytes(b"".join((*lines, b'{"type":"fault.cut sh\n')))
    return folder


def results(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    found = [json.loads(p.read_text()) for p in pytester.path.glob("allure/*-result.json")]
    return {result["name"]: result for result in found}


def attached(pytester: pytest.Pytester, result: dict[str, object]) -> dict[str, Path]:
    attachments = result["attachments"]
    assert isinstance(attachments, list)
    return {a["name"]: pytester.path / "allure" / a["source"] for a in attachments}


@pytest.mark.usefixtures("judged")
def test_a_violation_is_shown_as_failed_with_attachments(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    runpytest(pytester, "--alluredir=allure").assert_outcomes(failed=2, passed=1)
    shown = results(pytester)
    assert shown["test_violated"]["status"] == "failed"
    assert shown["test_undecided"]["status"] == "broken"
    sources = attached(pytester, shown["test_violated"])
    assert {"verdicts", "explanation", "timeline", "run folder"} <= set(sources)
    assert sources["explanation"].read_text().splitlines() == [
        "QC-17: A fenced broker serves no client.",
        "  it served 3 messages",
        "  epoch 4 began",
    ]
    page = sources["verdicts"].read_text()
    assert page.index("QC-17") < page.index("QC-09"), "the worst comes first"
    assert "It &lt;holds&gt;." in page
    assert sources["timeline"].read_text() == "<svg></svg>"
    without = attached(pytester, shown["test_violated_without_java"])
    assert without["no timeline"].read_text() == "Java 17 or newer is missing"


def labels(result: dict[str, Any]) -> Sequence[tuple[str, str]]:
    ours = ("clause", "system", "version", "runtime", "seed")
    return [(one["name"], one["value"]) for one in result["labels"] if one["name"] in ours]


def titles(result: dict[str, Any]) -> Mapping[str, Sequence[str]]:
    """The steps of a result, each with those in it."""
    return {one["name"]: [below["name"] for below in one["steps"]] for one in result["steps"]}


@pytest.mark.usefixtures("judged")
def test_a_result_has_labels_and_a_step_for_each_fault_with_its_receipts(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(TEST)
    runpytest(pytester, "--alluredir=allure")
    shown = results(pytester)["test_violated"]
    assert labels(shown) == [
        ("clause", "QC-09"),
        ("clause", "QC-17"),
        ("system", "apache/kraft@4.1.0"),
        ("version", "4.1.0"),
        ("runtime", "process"),
        ("seed", "7"),
    ]
    assert titles(shown) == {
        "cut of broker-1, broker-2 at 0.500 s": [
            "receipt: no answer",
            "healed, without a receipt at 1.005 s: no answer yet",
        ],
        "pause of the cluster at 1.003 s": [
            "no receipt: it still ran",
            "receipt at 1.004 s: it stands still",
        ],
    }
    assert labels(results(pytester)["test_undecided"]) == []


def test_the_results_folder_has_the_environment_and_categories_of_each_end(
    pytester: pytest.Pytester, judged: Path
) -> None:
    pytester.makepyfile(TEST)
    runpytest(pytester, "--alluredir=allure")
    folder = pytester.path / "allure"
    assert (folder / "environment.properties").read_text().splitlines() == [
        "system=apache/kraft@4.1.0",
        "runtime=process",
        "version.apache/kraft=4.1.0",
        "version.fencepost=0.1.0",
    ]
    categories = json.loads((folder / "categories.json").read_text())
    found = {
        name: [
            one["name"]
            for one in categories
            if result["status"] in one["matchedStatuses"]
            and re.fullmatch(one["messageRegex"], result["statusDetails"]["message"])
        ]
        for name, result in results(pytester).items()
        if "statusDetails" in result
    }
    assert found == {
        "test_violated": ["A promise is violated"],
        "test_undecided": ["The environment failed"],
    }


def test_the_configuration_in_the_documentation_has_the_same_categories() -> None:
    text = (Path(__file__).parent / "allurerc.mjs").read_text()
    shown = re.findall(
        r'name: "([^"]+)",\s+matchers: {\s*statuses: \["(\w+)"\], message: /(.*)/', text
    )
    written = [
        (one["name"], *one["matchedStatuses"], str(one["messageRegex"]).removeprefix("(?s).*"))
        for one in CATEGORIES
    ]
    assert [(name, status, f"{message}.*") for name, status, message in shown] == written


def test_a_test_with_another_seed_is_the_same_test_to_allure(
    pytester: pytest.Pytester, judged: Path
) -> None:
    pytester.makepyfile(TEST)
    runpytest(pytester, "--alluredir=allure")
    first = {name: one["historyId"] for name, one in results(pytester).items()}
    (judged / "run.json").write_text(json.dumps({**RUN, "seed": 8}))
    runpytest(pytester, "--alluredir=allure", "--clean-alluredir")
    again = results(pytester)
    assert ("seed", "8") in labels(again["test_violated"])
    assert {name: one["historyId"] for name, one in again.items()} == first


@pytest.mark.parametrize("args", [(), ("-p", "no:allure_pytest")])
def test_no_timeline_is_made_if_allure_writes_nothing(
    pytester: pytest.Pytester, judged: Path, args: tuple[str, ...]
) -> None:
    """It is installed here, and so loaded by pytest, but was not asked for results."""
    pytester.makepyfile(TEST)
    runpytest(pytester, *args).assert_outcomes(failed=2, passed=1)
    assert list((judged / "report").iterdir()) == []


def test_a_known_finding_is_named_and_listed_below_new_ones() -> None:
    found = {
        "KR-06": WrittenVerdict(
            "violated", 1, "peer", "A refused process is gone.", known=("duplicates",)
        ),
        "QC-17": WrittenVerdict("violated", 1, "client", "A fenced broker serves no client."),
    }
    new, known = table(found).split("<tr>")[2:]
    assert "<td>QC-17</td><td>violated</td>" in new
    assert "<td>KR-06</td><td>known</td>" in known
    assert "<td>duplicates</td>" in known
