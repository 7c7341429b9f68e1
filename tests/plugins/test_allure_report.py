"""Allure: a broken promise is failed, with its verdicts and explanation attached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost_plugins.allure_report import WrittenVerdict, table

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
    return folder


def results(pytester: pytest.Pytester) -> dict[str, dict[str, object]]:
    found = [json.loads(p.read_text()) for p in pytester.path.glob("allure/*-result.json")]
    return {result["name"]: result for result in found}


def attached(pytester: pytest.Pytester, result: dict[str, object]) -> dict[str, Path]:
    attachments = result["attachments"]
    assert isinstance(attachments, list)
    return {a["name"]: pytester.path / "allure" / a["source"] for a in attachments}


@pytest.mark.usefixtures("judged")
def test_a_violation_is_shown_as_failed_with_attachments(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.runpytest_subprocess("--alluredir=allure").assert_outcomes(failed=2, passed=1)
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


@pytest.mark.parametrize("args", [(), ("-p", "no:allure_pytest")])
def test_no_timeline_is_made_if_allure_writes_nothing(
    pytester: pytest.Pytester, judged: Path, args: tuple[str, ...]
) -> None:
    """It is installed here, and so loaded by pytest, but was not asked for results."""
    pytester.makepyfile(TEST)
    pytester.runpytest_subprocess(*args).assert_outcomes(failed=2, passed=1)
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
