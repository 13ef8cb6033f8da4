"""A site of many runs: the newest in front, earlier ones behind a table that shows how behaviours fared."""

from __future__ import annotations

__all__ = ["publish"]

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pvaffinity.behaviours import BEHAVIOURS
from pvaffinity.errors import UserError
from pvaffinity.report.allure import allure_html
from pvaffinity.report.history import ALLURE, FILE, History, Run
from pvaffinity.report.model import Conformance
from pvaffinity.report.page import SIGNS, page
from pvaffinity.report.rendering import template
from pvaffinity.report.texts import headline
from pvaffinity.report.writing import write

KEEP = 50
"""Runs a site remembers."""
KEEP_ALLURE = 10
"""Runs in Allure's trends: each is about 0.8 kB per test, and all of them are part of the page."""


def publish(
    result: Conformance,
    site: Path,
    history: History,
    *,
    allure: Sequence[Path] = (),
    label: str = "",
    link: str = "",
    keep: int = KEEP,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Add a run to a history and write all of it as a site; returns its ``index.html``.

    ``summary.html``, ``conformance.json``, ``matrix.md``, ``badge.json`` and ``allure/`` at the top are the newest
    run's; ``runs/<id>/`` holds page and data of every run remembered.

    Args:
        result: of this run, all legs merged.
        site: a directory; made anew. One that holds anything else than an earlier site is refused.
        history: of the site so far.
        allure: directories of Allure results of this run.
        label: what was tested, such as a commit.
        link: address of the CI run.
        keep: how many runs to remember.
        progress: told how the Allure report goes.

    Raises:
        UserError: ``site`` is in use for something else.
    """
    if site.exists() and not (site / FILE).exists() and any(site.iterdir()):
        raise UserError(f"{site} holds files that are no earlier site", "name a directory of its own with --output")
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    run = Run.of(result, label, link)
    history = history.plus(run, result, keep)
    history.save(site)
    made = None
    if allure:
        trend = site / ALLURE
        trend.write_text(_last(history.allure, KEEP_ALLURE - 1), encoding="utf-8")
        made = allure_html(allure, site / "allure", history=trend, progress=progress)
    elif history.allure:
        (site / ALLURE).write_text(history.allure, encoding="utf-8")
    write(result, site, allure=made, back="index.html")
    for name, old in (history.results or {}).items():
        directory = site / "runs" / name
        directory.mkdir(parents=True)
        old.save(directory / "conformance.json")
        (directory / "summary.html").write_text(page(old, back="../../index.html"), encoding="utf-8")
    index = site / "index.html"
    index.write_text(_index(history, headline(result), allure=made is not None), encoding="utf-8")
    return index


def _last(text: str, lines: int) -> str:
    return "".join(text.splitlines(keepends=True)[-lines:])


def _index(history: History, answer: str, *, allure: bool) -> str:
    return template("index.html.j2").render(
        runs=history.runs, kept=history.results or {}, headline=answer, behaviours=BEHAVIOURS, sign=SIGNS, allure=allure
    )
