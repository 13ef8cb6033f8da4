"""Reports: verdicts from outcomes, files that merge, texts that say what is wrong first, a page that stands alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pvaffinity.behaviours import BEHAVIOURS
from pvaffinity.errors import UserError
from pvaffinity.races import Record
from pvaffinity.report import (
    BehaviourResult,
    BehaviourVerdict,
    ClusterResult,
    Conformance,
    Outcome,
    TestResult,
    badge,
    headline,
    matrix,
    merge,
    page,
    write,
)

DATA = Path(__file__).parent / "data/races"
RACE = {"title": "b to c", **Record.load(DATA / "kubernetes-1.37.jsonl").summary().to_dict()}


def behaviour(name: str, *outcomes: str, reason: str = "", core: bool = True) -> BehaviourResult:
    return BehaviourResult(
        name, tuple(TestResult(f"{name}-{i}", Outcome(o), 1.0, reason, core=core) for i, o in enumerate(outcomes))
    )


def cluster(version: str = "1.37.2", gate: str = "on", *changed: BehaviourResult) -> ClusterResult:
    """A cluster on which everything that can be asked for holds, but for the behaviours given."""
    asked = [b.id for b in BEHAVIOURS if gate == "on" or not b.needs_gate]
    found = {name: behaviour(name, "passed", "passed") for name in asked} | {b.name: b for b in changed}
    races = (RACE,) if gate == "on" else ()
    return ClusterResult(
        "local", version, f"gate-{gate}", gate, gate, tuple(found.values()), "2026-01-01T00:00:00Z", 60.0, races
    )


GOOD = Conformance("0.1.0", (cluster(gate="off"), cluster()))
BROKEN = behaviour("race", "passed", "failed", reason="AssertionError: <b>escaped</b> | at -2 ms\nmore")


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ("passed", "holds"),
        ("passed xfailed", "holds"),
        ("xfailed", "holds"),
        ("passed failed", "broken"),
        ("passed xpassed", "broken"),
        ("failed error", "broken"),
        ("passed error", "partial"),
        ("passed skipped", "partial"),
        ("passed, not supported", "partial"),
        ("not supported", "not supported"),
        ("not supported, skipped", "not run"),
        ("error", "not run"),
        ("skipped", "not run"),
        ("", "not run"),
    ],
)
def test_verdict_of_a_behaviour(outcomes, verdict):
    """A failure breaks it, what was not judged makes it partial, and nothing judged is never a pass."""
    parts = [part.strip() for part in outcomes.split(",")] if "not supported" in outcomes else outcomes.split()
    assert behaviour("rbac", *parts).verdict == verdict


def test_only_core_checks_make_a_verdict_partial():
    """A check that is not core may be missing, but not end in an error."""
    extra = behaviour("rbac", "not supported", core=False).tests
    assert BehaviourResult("rbac", behaviour("rbac", "passed").tests + extra).verdict == BehaviourVerdict.HOLDS
    error = behaviour("rbac", "error", core=False).tests
    assert BehaviourResult("rbac", behaviour("rbac", "passed").tests + error).verdict == BehaviourVerdict.PARTIAL


def test_result_survives_json(tmp_path):
    """What is saved and loaded is the same value, and the file says the verdicts in words."""
    path = GOOD.save(tmp_path / "conformance.json")
    assert Conformance.load(path) == GOOD
    data = json.loads(path.read_text())
    assert data["clusters"][1]["behaviours"][0] == {
        "name": "gate",
        "verdict": "holds",
        "tests": [
            {
                "id": f"gate-{i}",
                "outcome": "passed",
                "seconds": 1.0,
                "reason": "",
                "title": "",
                "core": True,
                "first_try": "",
            }
            for i in range(2)
        ],
    }


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema":"other/1"}', '{"schema":"pvaffinity-conformance/1","suite_version":"1"}',
             '{"schema":"pvaffinity-conformance/1","suite_version":"1","clusters":[{"behaviours":[]}]}'],
)  # fmt: skip
def test_other_files_are_refused_by_name(tmp_path, text):
    """A file that is no result is named in one line with what to give instead."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"other\.json is no conformance result"):
        Conformance.load(path)
    with pytest.raises(UserError, match="cannot be read"):
        Conformance.load(tmp_path / "absent.json")


def test_merging_keeps_clusters_apart_and_in_order(tmp_path):
    """The legs of a matrix come out as columns, versions in numerical order, gate off before on."""
    legs = [cluster("1.37.2"), cluster("1.9.1"), cluster("1.37.2", "off"), cluster("1.38.0-beta.0")]
    files = [Conformance("0.1.0", (leg,)).save(tmp_path / f"{i}.json") for i, leg in enumerate(legs)]
    merged = [(c.kubernetes, c.configuration) for c in merge(files).clusters]
    assert merged == [
        ("1.9.1", "gate-on"),
        ("1.37.2", "gate-off"),
        ("1.37.2", "gate-on"),
        ("1.38.0-beta.0", "gate-on"),
    ]


def test_a_later_run_of_a_test_replaces_the_earlier(tmp_path):
    """A repeated test counts once, by its later result, whatever the order of the files; other tests stay."""
    first = cluster("1.37.2", "on", BROKEN)
    again = replace(
        cluster(), behaviours=(behaviour("race", "passed", "passed"),), started="2026-01-02T00:00:00Z", races=()
    )
    files = [Conformance("1", (c,)).save(tmp_path / f"{i}.json") for i, c in enumerate((again, first))]
    (joined,) = merge(files).clusters
    assert joined.behaviour("race").verdict == BehaviourVerdict.HOLDS
    assert joined.behaviour("rbac").verdict == BehaviourVerdict.HOLDS
    assert joined.races == (RACE,)


def test_a_part_that_is_repeated_does_not_unsay_the_rest(tmp_path):
    """What the later run left out (``-k``) keeps its earlier result; what only the later run has is taken over."""
    first = cluster("1.37.2", "on", BROKEN)
    left_out = (behaviour("rbac", "skipped", "skipped", "skipped"), behaviour("race", "skipped", "passed"))
    again = replace(cluster(), behaviours=left_out, started="2026-01-02T00:00:00Z")
    files = [Conformance("1", (c,)).save(tmp_path / f"{i}.json") for i, c in enumerate((first, again))]
    (joined,) = merge(files).clusters
    assert joined.behaviour("race").verdict == BehaviourVerdict.HOLDS
    assert [test.outcome for test in joined.behaviour("rbac").tests] == ["passed", "passed", "skipped"]


def test_nothing_to_merge_is_an_error():
    """No file is not an empty success."""
    with pytest.raises(UserError, match="no conformance result"):
        merge([])


ALL = len(BEHAVIOURS)
PLAIN = sum(not behaviour.needs_gate for behaviour in BEHAVIOURS)
WRONG_GATE = Conformance("1", (replace(cluster(), gate_measured="off"),))
NOTHING = Conformance("1", ())
UNJUDGED = Conformance("1", (replace(cluster(), behaviours=()),))
HALF = Conformance("1", (cluster(gate="off"), replace(cluster(), behaviours=())))
PARTIAL = Conformance("1", (cluster("1.37.2", "on", behaviour("rbac", "passed", "skipped")), cluster(gate="off")))
OFF_ONLY = Conformance("1", (cluster("1.34.4", "off"),))
NO_IO = Conformance("1", (cluster(gate="off"), cluster("1.37.2", "on", behaviour("io", "not supported"))))
FAILED = Conformance("1", (cluster("1.36.3", "on", BROKEN), cluster()))


@pytest.mark.parametrize(
    ("result", "says", "shield", "colour", "holds"),
    [
        (GOOD, f"All {ALL} behaviours hold on Kubernetes 1.37.2 (gate-off, gate-on).", f"{ALL}/{ALL} hold on 1.37",
         "brightgreen", 1),
        (FAILED, "Broken: Tightening race on 1.36.3 gate-on (local).", "1 broken on 1.36–1.37", "red", 0),
        (WRONG_GATE, "The gate is off on 1.37.2 gate-on (local), though it should be on", "wrong gate on 1.37", "red",
         0),
        (PARTIAL, f"{ALL - 1} of {ALL} behaviours hold on Kubernetes 1.37.2 (gate-on, gate-off); 1 partial.",
         f"{ALL - 1}/{ALL} hold on 1.37",
         "yellow", 0),
        (OFF_ONLY, f"{PLAIN} of {ALL} behaviours hold on Kubernetes 1.34.4 (gate-off); {ALL - PLAIN} need the gate.",
         f"{PLAIN}/{ALL} hold on 1.34",
         "yellow", 0),
        (NO_IO, f"{ALL - 1} of {ALL} behaviours hold on Kubernetes 1.37.2 (gate-off, gate-on); 1 not supported.",
         f"{ALL - 1}/{ALL} hold on 1.37", "green", 1),
        (HALF, f"0 of {ALL} behaviours hold on Kubernetes 1.37.2 (gate-off, gate-on); {ALL} not run.",
         f"0/{ALL} hold on 1.37", "yellow", 0),
        (UNJUDGED, "Nothing was judged", "nothing run", "lightgrey", 0),
        (NOTHING, "Nothing was judged", "nothing run", "lightgrey", 0),
    ],
)  # fmt: skip
def test_headline_and_badge_say_the_worst_first(result, says, shield, colour, holds):
    """One sentence and one badge say whether the behaviours hold; a wrong gate or a failure goes before all else."""
    assert headline(result).startswith(says)
    made = badge(result)
    assert (made["schemaVersion"], made["message"], made["color"]) == (1, shield, colour)
    assert result.holds == bool(holds)


def test_matrix_has_a_cell_for_every_behaviour_and_cluster():
    """Every row has as many cells as the header, and a failure's text cannot break the table."""
    lines = matrix(FAILED).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == len(BEHAVIOURS) + 3
    assert {line.count("|") for line in table} == {4}
    assert any(r"<b>escaped</b> \| at -2 ms" in line for line in lines)


class Links(HTMLParser):
    """Collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.ids: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links, ids and that the tag is open."""
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        self.found += [(name, value) for name, value in attrs if name in ("href", "src", "data", "action") and value]
        if tag not in ("meta", "line", "rect", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that tags are closed in order."""
        if tag not in ("meta", "line", "rect", "br"):
            assert self.open.pop() == tag


@pytest.mark.parametrize("result", [GOOD, FAILED, WRONG_GATE, PARTIAL, UNJUDGED, NOTHING])
def test_page_stands_alone(result):
    """The page is well formed, loads nothing, and its links lead to places in it."""
    links = Links()
    html = page(result)
    links.feed(html)
    assert not links.open
    assert "url(" not in html
    assert "<script" not in html
    for name, value in links.found:
        assert name == "href"
        assert value.startswith("#")
        assert value[1:] in links.ids, value


def test_page_shows_what_is_broken_as_text():
    """A failure's message is shown whole and is not taken for HTML; the races' counts are in the page."""
    html = page(FAILED)
    assert "AssertionError: &lt;b&gt;escaped&lt;/b&gt; | at -2 ms\nmore" in html
    assert "What is broken" in html
    assert "update acknowledged" in html
    assert re.search(r'class="f-stranded"', html)


def test_write_makes_the_four_files(tmp_path):
    """Data, table, badge and page lie side by side; the page links the detailed report relative to itself."""
    summary = write(GOOD, tmp_path / "out", allure=tmp_path / "out/allure/index.html")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"conformance.json", "matrix.md", "badge.json", "summary.html"}
    assert 'href="allure/index.html"' in summary.read_text()
