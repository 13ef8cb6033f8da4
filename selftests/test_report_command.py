"""``pvaffinity report``: what it reads, what it writes, and what it refuses."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pvaffinity.cli.report import report
from pvaffinity.errors import UserError
from pvaffinity.report import Conformance
from selftests.test_report import DATA, FAILED, GOOD


def test_command_merges_and_checks(tmp_path):
    """The command writes one site for several results; with --check it exits with 1 if something is wrong."""
    for name, result in (("a", GOOD), ("b", FAILED)):
        result.save(tmp_path / name / "conformance.json")
    site = str(tmp_path / "site")
    run = CliRunner().invoke(report, [str(tmp_path / "a"), str(tmp_path / "b/conformance.json"), "-o", site])
    assert run.exit_code == 0, run.output
    assert "Broken: Tightening race" in run.output
    assert (tmp_path / "site/summary.html").exists()
    assert CliRunner().invoke(report, [str(tmp_path / "a"), "-o", site, "--check"]).exit_code == 0
    assert CliRunner().invoke(report, [str(tmp_path), "-o", site, "--check"]).exit_code == 1


def test_command_judges_saved_races_again(tmp_path):
    """Saved races are judged anew; escaped rounds are named, and with --check they fail."""
    good = CliRunner().invoke(report, ["--rejudge", "--check", str(DATA / "kubernetes-1.37.jsonl")])
    assert good.exit_code == 0, good.output
    bad = CliRunner().invoke(report, ["--rejudge", "--check", str(DATA)])
    assert bad.exit_code == 1
    assert "escaped: ran on old" in bad.output


def test_command_without_files_makes_the_suites_reports_anew(tmp_path, monkeypatch):
    """What is read, and written anew, is where the suite writes; results of other runs do not go over it."""
    monkeypatch.chdir(tmp_path)
    GOOD.save(tmp_path / "reports/conformance.json")
    FAILED.save(tmp_path / "reports/kind/conformance.json")  # pytest --reports reports/kind
    FAILED.save(tmp_path / "legs/conformance.json")
    assert CliRunner().invoke(report, []).exit_code == 0
    assert (tmp_path / "reports/summary.html").exists()
    assert CliRunner().invoke(report, ["legs"]).exit_code == 0
    assert Conformance.load(tmp_path / "reports/conformance.json") == GOOD
    assert Conformance.load(tmp_path / "merged/conformance.json") == FAILED


@pytest.mark.parametrize(
    "arguments,told",
    [
        (["--expect", "local,knid"], "no provider 'knid'; did you mean kind?"),
        (["--expect", ""], "no provider ''"),
        (["--label", "main"], "--label is for a site"),
        (["--rejudge", "--output", "x"], "--rejudge writes nothing"),
    ],
)
def test_command_refuses_what_means_nothing(tmp_path, monkeypatch, arguments, told):
    """A provider that there is not, and options that go with others only, are refused before anything is written."""
    monkeypatch.chdir(tmp_path)
    GOOD.save(tmp_path / "a/conformance.json")
    run = CliRunner().invoke(report, ["a", *arguments])
    assert isinstance(run.exception, UserError), run.output
    assert told in run.exception.what
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("arguments", [[], ["--rejudge"], ["{empty}"], ["--rejudge", "{empty}"]])
def test_command_without_input_says_what_to_give(tmp_path, monkeypatch, arguments):
    """Nothing to report on is the user's to change, never an empty report."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    run = CliRunner().invoke(report, [a.format(empty=tmp_path / "empty") for a in arguments])
    assert isinstance(run.exception, UserError)
