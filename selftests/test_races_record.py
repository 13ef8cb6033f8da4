"""A sweep's record: steps, summaries, files and charts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pvaffinity.errors import UserError
from pvaffinity.races import OFFSETS_MS, Record
from pvaffinity.races.record import step_of
from pvaffinity.verdicts import Verdict

DATA = Path(__file__).parent / "data/races"


@pytest.mark.parametrize(
    ("measured", "step"),
    [
        (-30, -30),
        (-34.9, -30),
        (-35.1, None),
        (-24, -20),
        (-1.2, -2),
        (-0.01, -2),
        (0.0, 0),
        (0.9, 0),
        (1.1, 2),
        (34.9, 30),
        (36, None),
    ],
)
def test_a_round_belongs_to_the_nearest_step_of_its_sign(measured, step):
    """A measured offset counts for the nearest step, never across zero, and not at all far outside."""
    assert step_of(measured, OFFSETS_MS) == step


def test_saved_record_is_the_same_record(tmp_path):
    """Saving and loading keeps every history, so that judging again gives the same summary."""
    record = Record.load(DATA / "handmade.jsonl")
    again = Record.load(record.save(tmp_path / "race.jsonl"))
    assert again == record
    assert again.summary() == record.summary()


def test_summary_counts_every_round_and_names_what_fails():
    """Each round is counted once, and each escaped or unknown one is named with its reason."""
    summary = Record.load(DATA / "handmade.jsonl").summary()
    counts = {str(verdict): count for verdict, count in summary.totals.items()}
    assert counts == {"kept": 2, "pending": 1, "stranded": 2, "escaped": 2, "unknown": 2}
    assert not summary.holds
    assert {history.name.split(":")[0] for history, _ in summary.failures} == {"escaped", "unknown"}
    assert "escaped: runs on the old node" in str(summary)
    assert [history.name for history, _ in summary.left_out] == ["unknown: the update was never acknowledged"]
    assert "does not count: the update was never acknowledged" in str(summary)


def test_real_record_holds():
    """Rounds of a real 1.37 cluster: no pod escaped, stranded ones included."""
    summary = Record.load(DATA / "kubernetes-1.37.jsonl").summary()
    assert summary.holds, str(summary)
    assert summary.totals[Verdict.STRANDED] > 0


def test_real_escapes_are_found():
    """Rounds of a real cluster whose kubelet had nothing to check: stale placements ran, and are judged so.

    The pods listed their claim without mounting it, and the kubelet looks at mounted volumes only.
    """
    summary = Record.load(DATA / "unchecked-volume.jsonl").summary()
    counts = {str(verdict): count for verdict, count in summary.totals.items() if count}
    assert counts == {"escaped": 4, "kept": 5}
    assert not replace(summary, rounds=0).holds


def test_a_step_without_its_rounds_is_no_evidence():
    """A sweep that lacks rounds in one step does not hold, even if nothing went wrong."""
    record = Record.load(DATA / "kubernetes-1.37.jsonl")
    some = tuple(h for h in record.histories if h.offset_ms is None or h.offset_ms < 0)
    summary = replace(record, histories=some).summary()
    assert not summary.failures
    assert not summary.holds


@pytest.mark.parametrize("text", ["", "{}", '{"format":"pvaffinity-race/1"}', "no json", '{"format":"other/9"}\n'])
def test_damaged_records_are_refused_by_name(tmp_path, text):
    """A file that is no record, or half of one, is the user's to replace, in one line."""
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=r"x\.jsonl is (not a race record|damaged)"):
        Record.load(path)


def test_a_cut_line_is_damage(tmp_path):
    """A record whose last line is cut off is not read as a shorter one."""
    path = tmp_path / "cut.jsonl"
    path.write_text((DATA / "handmade.jsonl").read_text()[:-40])
    with pytest.raises(UserError, match="damaged"):
        Record.load(path)


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_chart_is_drawn(tmp_path, ending):
    """The chart is written in the format its name ends with."""
    path = Record.load(DATA / "handmade.jsonl").chart(tmp_path / f"chart.{ending}")
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
