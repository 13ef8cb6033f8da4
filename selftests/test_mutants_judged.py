"""What is made of the suite's findings about a mutant, and the table of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pvaffinity.mutants import table
from pvaffinity.mutants.catalogue import Mutant
from pvaffinity.mutants.judging import Judgement, Verdict, judge
from pvaffinity.report import Conformance

BREAK = Mutant("break", "breaks it", "k8s.io/kubernetes/a.go", "x", "y", breaks=("race",), component="kubelet")
HARMLESS = replace(BREAK, name="harmless", breaks=(), harmless=True)


def found(**outcomes: str) -> Conformance:
    """A result with one check per behaviour and outcome, such as ``race="failed"``; several are separated by commas."""
    behaviours = [
        {
            "name": name,
            "tests": [
                {"id": f"suites/test_{name}.py::test_{n}[1.37-gate-on]", "outcome": outcome, "reason": f"why {n}\nmore"}
                for n, outcome in enumerate(listed.split(","))
            ],
        }
        for name, listed in outcomes.items()
    ]
    cluster = {"provider": "local", "kubernetes": "1.37.2", "configuration": "gate-on"}
    cluster |= {"gate_wanted": "on", "gate_measured": "on"}
    document = {
        "schema": "pvaffinity-conformance/1",
        "suite_version": "0",
        "clusters": [{**cluster, "behaviours": behaviours}],
    }
    return Conformance.from_dict(json.loads(json.dumps(document)))


@pytest.mark.parametrize(
    "mutant, outcomes, verdict",
    [
        (BREAK, {"race": "failed,passed", "gate": "passed"}, Verdict.KILLED),
        (BREAK, {"race": "xpassed"}, Verdict.KILLED),
        (BREAK, {"race": "passed", "gate": "passed"}, Verdict.SURVIVED),
        (BREAK, {"race": "error,passed"}, Verdict.MISFIRE),
        (BREAK, {"race": "failed", "gate": "failed"}, Verdict.MISFIRE),
        (BREAK, {"race": "passed", "gate": "failed"}, Verdict.MISFIRE),
        (BREAK, {"race": "failed", "gate": "error"}, Verdict.MISFIRE),
        (BREAK, {"race": "failed", "gate": "skipped"}, Verdict.MISFIRE),
        (BREAK, {"race": "failed", "gate": "not supported"}, Verdict.MISFIRE),
        (BREAK, {"race": "failed", "io": "not supported"}, Verdict.KILLED),
        (replace(BREAK, also={"gate": "since"}), {"race": "failed", "gate": "failed"}, Verdict.KILLED),
        (replace(BREAK, also={"gate": "since"}), {"race": "failed", "gate": "error"}, Verdict.MISFIRE),
        (replace(BREAK, also={"not judged": "since"}), {"race": "failed", "gate": "error"}, Verdict.KILLED),
        (replace(BREAK, also={"gate": "since"}), {"race": "passed", "gate": "failed"}, Verdict.SURVIVED),
        (replace(BREAK, survives="since"), {"race": "passed"}, Verdict.BLIND),
        (replace(BREAK, survives="since"), {"race": "failed"}, Verdict.SEEN),
        (replace(BREAK, survives="since"), {"race": "passed", "gate": "failed"}, Verdict.MISFIRE),
        (HARMLESS, {"race": "passed,xfailed", "gate": "passed", "io": "not supported"}, Verdict.GREEN),
        (HARMLESS, {"race": "passed", "gate": "failed"}, Verdict.FALSE_ALARM),
        (HARMLESS, {"race": "passed", "gate": "error"}, Verdict.UNJUDGED),
        (HARMLESS, {"race": "skipped", "gate": "error"}, Verdict.UNJUDGED),
        (BREAK, {"race": "skipped", "gate": "error"}, Verdict.UNJUDGED),
        (BREAK, {}, Verdict.UNJUDGED),
    ],
)
def test_the_verdict_follows_from_the_outcomes(mutant: Mutant, outcomes: dict[str, str], verdict: Verdict) -> None:
    """Killed takes a red check of the promise and nothing unexplained beside it; nothing judged is never fine."""
    assert judge(mutant, found(**outcomes)).verdict is verdict


def test_what_was_left_out_on_purpose_is_not_missed() -> None:
    """Deselected checks are not counted; one whose turn never came was not judged."""
    result = found(race="failed", gate="skipped")
    left_out = json.loads(json.dumps(result.to_dict()).replace("why 0\\nmore", "deselected"))
    assert judge(BREAK, Conformance.from_dict(left_out)).unjudged == ()


def test_a_row_has_all_checks_with_their_reasons() -> None:
    """Red checks of the promise, of others, and those not judged are told apart, each with the first line of why."""
    row = judge(BREAK, found(race="failed,failed,passed", gate="failed", relaxing="error"))
    assert row.killers == {"test_0": 1, "test_1": 1}
    assert row.stray == ("suites/test_gate.py::test_0[1.37-gate-on]",)
    assert row.unjudged == ("suites/test_relaxing.py::test_0[1.37-gate-on]",)
    assert row.checks == 4
    assert row.unexplained == ("gate", "not judged")
    assert set(row.reasons.values()) == {"why 0", "why 1"}


def test_only_what_the_suite_must_do_is_fine() -> None:
    """A survivor, a misfire, a false alarm and what was not judged make the command fail."""
    assert {verdict for verdict in Verdict if verdict.fine} == {Verdict.KILLED, Verdict.GREEN, Verdict.BLIND}


def test_the_table_names_every_mutant_and_what_is_wrong(tmp_path: Path) -> None:
    """Verdicts, the checks that noticed, what the suite cannot see and what went wrong stand in page and JSON."""
    blind = replace(BREAK, name="blind", survives="For want of eyes.", also={"gate": "It leans on it."})
    rows = [
        (BREAK, judge(BREAK, found(race="failed", gate="failed"))),
        (blind, judge(blind, found(race="passed"))),
        (HARMLESS, judge(HARMLESS, found(race="passed"))),
        (replace(BREAK, name="broken"), Judgement("broken", Verdict.UNJUDGED, why="it does not compile")),
    ]
    page = table.write(rows, tmp_path, "1.37.2", "./run mutants").read_text()
    assert "0 of 3 breaks killed; 1 of 1 harmless changes green; 1 not seen, as known; 1 misfire; 1 not judged." in page
    assert "| break | kubelet: breaks it | race | **misfire** | `test_0` | 1 | 1 | 0 | 2 |" in page
    assert "- `blind`: breaks it. For want of eyes." in page
    assert "- `blind`, gate: It leans on it." in page
    assert "- `break`, misfire: test_0[1.37-gate-on] (why 0)" in page
    assert "- `broken`, not judged: it does not compile" in page
    assert [row["verdict"] for row in json.loads((tmp_path / "mutants.json").read_text())["mutants"]] == [
        "misfire",
        "not seen, as known",
        "green",
        "not judged",
    ]
