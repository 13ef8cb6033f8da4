"""Reports: what a run found out as data (``conformance.json``), as a table, as a badge, and as a page for people."""

from __future__ import annotations

__all__ = [
    "BehaviourResult",
    "BehaviourVerdict",
    "ClusterResult",
    "Comparison",
    "Conformance",
    "Outcome",
    "TestResult",
    "allure_html",
    "badge",
    "compare",
    "earlier",
    "headline",
    "matrix",
    "merge",
    "page",
    "publish",
    "staleness",
    "write",
]

from pvaffinity.report.allure import allure_html
from pvaffinity.report.comparing import Comparison, compare
from pvaffinity.report.history import earlier
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
from pvaffinity.report.publishing import publish
from pvaffinity.report.staleness import staleness
from pvaffinity.report.texts import badge, headline, matrix
from pvaffinity.report.writing import write
