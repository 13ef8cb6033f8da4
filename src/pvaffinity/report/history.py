"""What a published site remembers of earlier runs: one row each in ``history.json``, and their results as data.

Pages are made anew from that data with every publication, so that old runs never look old.
"""

from __future__ import annotations

__all__ = ["History", "Run", "earlier"]

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx

from pvaffinity import web
from pvaffinity.behaviours import BEHAVIOURS
from pvaffinity.errors import UserError
from pvaffinity.report.model import Conformance, Outcome
from pvaffinity.report.texts import badge, headline, overall
from pvaffinity.shape import ShapeError, check_fields, from_json, shaped

T = TypeVar("T")
SCHEMA = "pvaffinity-history/1"
FILE = "history.json"
ALLURE = "allure-history.jsonl"
_REMOTE = ("http://", "https://")
_PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_FIX = "try again; to begin a new history, publish once without --history"


@dataclass(frozen=True)
class Run:
    """One publication, as a row.

    Attributes:
        id: names its directory; the time its last cluster was asked for.
        headline: the answer in one sentence.
        colour: of its badge.
        verdicts: by behaviour, the worst over all clusters.
        tests: how many ended how.
        label: what was tested, such as a commit.
        link: where it ran; empty if nowhere.
    """

    id: str
    headline: str
    colour: str
    verdicts: Mapping[str, str]
    tests: Mapping[str, int]
    label: str = ""
    link: str = ""

    @classmethod
    def of(cls, result: Conformance, label: str = "", link: str = "") -> Run:
        """The row of a result."""
        started = max((cluster.started for cluster in result.clusters), default="")
        tests = [t.outcome for c in result.clusters for b in c.behaviours for t in b.tests]
        return cls(
            id=re.sub(r"[^0-9A-Za-z]+", "-", started.removesuffix("+00:00").removesuffix("Z")).strip("-") or "unknown",
            headline=headline(result),
            colour=badge(result)["color"],
            verdicts={behaviour.id: str(overall(result, behaviour)) for behaviour in BEHAVIOURS},
            tests={str(outcome): tests.count(outcome) for outcome in Outcome if outcome in tests},
            label=label,
            link=link,
        )

    @property
    def when(self) -> str:
        """Date and time for people, UTC."""
        return re.sub(r"^(\d+-\d+-\d+)-T?(\d+)-(\d+).*", r"\1 \2:\3", self.id.replace("T", "-"))


@dataclass(frozen=True)
class History:
    """All runs a site remembers, newest first, with the data of those it has a page of."""

    runs: tuple[Run, ...] = ()
    results: Mapping[str, Conformance] | None = None
    allure: str = ""

    def plus(self, run: Run, result: Conformance, keep: int) -> History:
        """With one more; a run of the same id is replaced, and the oldest beyond ``keep`` are forgotten."""
        runs = sorted([run, *(r for r in self.runs if r.id != run.id)], key=lambda r: r.id, reverse=True)[:keep]
        results = {**(self.results or {}), run.id: result}
        return replace(self, runs=tuple(runs), results={r.id: results[r.id] for r in runs if r.id in results})

    def save(self, site: Path) -> None:
        """Write the rows; the runs' own files are the publisher's."""
        data = {"schema": SCHEMA, "runs": [asdict(run) for run in self.runs]}
        (site / FILE).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def earlier(place: str) -> History:
    """Read a site's history, from its address or from a directory. None yet is an empty one.

    Raises:
        UserError: it is there but cannot be read, the site does not answer, or there is no such place: going on would
            lose it.
    """
    _check_place(place)
    text = _get(place, FILE)
    if text is None:
        return History()
    runs = _read(place, FILE, lambda: _runs(from_json(text)))
    found = {run.id: _result(place, f"runs/{run.id}/conformance.json") for run in runs}
    results = {name: result for name, result in found.items() if result}
    return History(runs, results, _get(place, ALLURE) or "")


def _check_place(place: str) -> None:
    """A mistyped place must not begin a new history: of a directory that is not there yet, the one above is."""
    if place.startswith(_REMOTE):
        return
    path = Path(place).absolute()
    if not place or (path.exists() and not path.is_dir()):
        raise UserError(
            f"--history: {place!r} is no directory", "name the address of the site so far, or its directory"
        )
    if not path.parent.is_dir():
        raise UserError(
            f"--history: there is no directory {place}, nor one to make it in",
            "name the site's address with https://, or its directory; to begin a history there, make the one above it",
        )


def _read(place: str, name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        what = f"the history at {place} cannot be read: {name}: {error}"
        raise UserError(what, "restore that file; to begin a new history, publish once without --history") from error


def _runs(data: Any) -> tuple[Run, ...]:
    """The rows; their ids become names of directories and are checked."""
    data = check_fields({"schema": str, "runs": list[dict[str, Any]]}, data)
    if data["schema"] != SCHEMA:
        raise ShapeError(f"schema {data['schema']!r} is not {SCHEMA}")
    runs = shaped(tuple[Run, ...], data["runs"], "runs")
    if strange := [run.id for run in runs if not _PLAIN.fullmatch(run.id)]:
        raise ShapeError(f"{strange[0]!r} is no name of a run")
    return runs


def _result(place: str, name: str) -> Conformance | None:
    text = _get(place, name)
    return _read(place, name, lambda: Conformance.from_dict(from_json(text))) if text else None


def _get(place: str, name: str) -> str | None:
    """A file of the site as text, or None where there is none."""
    if not place.startswith(_REMOTE):
        path = Path(place) / name
        return _read(place, name, lambda: path.read_text(encoding="utf-8")) if path.exists() else None
    address: Any = f"{place.rstrip('/')}/{name}"
    try:
        with web.client(60, retries=3) as client:
            answer = client.get(address, headers={"Cache-Control": "no-cache"})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return answer.raise_for_status().text
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the earlier site does not give {address}: {reason}", _FIX) from error
