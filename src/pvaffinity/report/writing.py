"""The files of one report: data, table, badge and page, side by side."""

from __future__ import annotations

__all__ = ["write"]

import json
from pathlib import Path

from pvaffinity.report.model import Conformance
from pvaffinity.report.page import page
from pvaffinity.report.texts import badge, matrix


def write(result: Conformance, directory: Path, *, allure: Path | None = None, back: str | None = None) -> Path:
    """Write ``conformance.json``, ``matrix.md``, ``badge.json`` and ``summary.html``; returns the page's path.

    ``allure`` is the path of a detailed report inside ``directory`` to link to, ``back`` a link to a page of all runs.
    """
    directory.mkdir(parents=True, exist_ok=True)
    result.save(directory / "conformance.json")
    (directory / "matrix.md").write_text(matrix(result), encoding="utf-8")
    (directory / "badge.json").write_text(json.dumps(badge(result)) + "\n", encoding="utf-8")
    summary = directory / "summary.html"
    link = allure.relative_to(directory).as_posix() if allure else None
    summary.write_text(page(result, allure=link, back=back), encoding="utf-8")
    return summary
