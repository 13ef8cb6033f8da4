"""Reports: what a run found out as data (``conformance.json``), as a table, as a badge, and as a page for people."""

from __future__ import annotations

__all__ = [
    "BehaviourResult",
    "BehaviourVerdict",
    "ClusterResult",
    "Conformance",
    "Outcome",
    "TestResult",
    "allure_html",
    "badge",
    "headline",
    "matrix",
    "merge",
    "page",
    "write",
]

import json
from pathlib import Path

from pvaffinity.report.allure import allure_html
from pvaffinity.report.merging import merge
from pvaffinity.report.model import (
    BehaviourResult,
    BehaviourVerdict,
    ClusterResult,
    Conformance,
    Outcome,
    TestResult,
)
from pvaffinity.report.page import page
from pvaffinity.report.texts import badge, headline, matrix


def write(result: Conformance, directory: Path, *, allure: Path | None = None) -> Path:
    """Write ``conformance.json``, ``matrix.md``, ``badge.json`` and ``summary.html``; returns the page's path.

    ``allure`` is the path of a detailed report to link to, inside ``directory``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    result.save(directory / "conformance.json")
    (directory / "matrix.md").write_text(matrix(result))
    (directory / "badge.json").write_text(json.dumps(badge(result)) + "\n")
    summary = directory / "summary.html"
    link = allure.relative_to(directory).as_posix() if allure else None
    summary.write_text(page(result, allure=link))
    return summary
