"""The summary as one HTML file that needs nothing else: no script, no font, no image from elsewhere."""

from __future__ import annotations

__all__ = ["SIGNS", "page"]

from collections.abc import Mapping
from typing import Any

from pvaffinity.behaviours import BEHAVIOURS
from pvaffinity.report.model import BehaviourVerdict, Conformance, Outcome
from pvaffinity.report.rendering import template
from pvaffinity.report.staleness import staleness
from pvaffinity.report.texts import count_text, headline
from pvaffinity.verdicts import Verdict

SIGNS = {"holds": "✓", "broken": "✗", "partial": "◐", "not supported": "–", "not run": "○"}
_CHART_HEIGHT, _BAR, _GAP = 150, 34, 12


def page(result: Conformance, *, allure: str | None = None, back: str | None = None) -> str:
    """The HTML text; ``allure`` is a link to a detailed report, ``back`` to all runs, both relative to the page."""
    return template("summary.html.j2", duration=_duration).render(
        result=result,
        behaviours=BEHAVIOURS,
        headline=headline(result),
        state=_state(result),
        count_text=count_text,
        sign=SIGNS,
        chart=_chart,
        staleness=staleness,
        verdicts=[str(verdict) for verdict in Verdict],
        bad=(Outcome.FAILED, Outcome.XPASSED),
        failures=_tests(result, Outcome.FAILED, Outcome.XPASSED),
        errors=_tests(result, Outcome.NOT_JUDGED),
        gaps=_tests(result, Outcome.XFAILED),
        allure=allure,
        back=back,
    )


def _state(result: Conformance) -> str:
    if result.wrong_gate or result.broken:
        return "broken"
    if result.holds:
        return "holds"
    return "partial" if result.judged else "none"


def _tests(result: Conformance, *outcomes: Outcome) -> list[dict[str, Any]]:
    """Tests that ended so, the same test on several clusters together."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for cluster in result.clusters:
        for behaviour in BEHAVIOURS:
            for test in cluster.behaviour(behaviour.id).tests:
                if test.outcome in outcomes:
                    entry = found.setdefault(
                        (test.id, test.reason), {"test": test, "behaviour": behaviour, "clusters": []}
                    )
                    entry["clusters"].append(cluster.id)
    return list(found.values())


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _chart(race: Mapping[str, Any]) -> dict[str, Any]:
    """Bars of equal height, divided by the verdicts' shares, as coordinates for the template."""
    steps = race["steps"]
    bars = []
    for number, step in enumerate(steps):
        x, floor, segments = 40 + number * (_BAR + _GAP), float(_CHART_HEIGHT), []
        for verdict in Verdict:
            count = step["counts"].get(verdict, 0)
            if count:
                height = count / sum(step["counts"].values()) * _CHART_HEIGHT
                floor -= height
                segments.append({"y": round(floor, 1), "h": round(height, 1), "verdict": str(verdict), "count": count})
        label = f"{step['offset_ms']:+g}" if step["offset_ms"] else "0+"
        bars.append({"x": x, "segments": segments, "label": label, "rounds": sum(step["counts"].values())})
    before = sum(step["offset_ms"] < 0 for step in steps)
    return {
        "bars": bars,
        "bar": _BAR,
        "height": _CHART_HEIGHT,
        "width": 40 + len(steps) * (_BAR + _GAP) + 10,
        "divide": 40 + before * (_BAR + _GAP) - _GAP / 2,
        "seen": [str(v) for v in Verdict if any(step["counts"].get(v, 0) for step in steps)],
    }


assert set(SIGNS) == {str(verdict) for verdict in BehaviourVerdict}
