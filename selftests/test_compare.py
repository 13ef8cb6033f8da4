"""Comparing providers: what two clusters were both asked must have ended the same, and silence means that it did."""

from dataclasses import replace

import pytest

from pvaffinity.cli import main
from pvaffinity.report import BehaviourResult, ClusterResult, Conformance, Outcome, TestResult, compare
from pvaffinity.report.model import ENDED_EARLY


def cluster(provider, *tests, version="1.37.2", configuration="gate-on"):
    found = tuple(TestResult(name, Outcome(outcome), 1.0, reason) for name, outcome, reason in tests)
    return ClusterResult(provider, version, configuration, "on", "on", (BehaviourResult("relaxing", found),))


GOOD = [("a", "passed", ""), ("b", "xfailed", "known gap")]


def conformance(*clusters):
    return Conformance("0.1.0", clusters)


def saved(tmp_path, *clusters):
    return [str(conformance(c).save(tmp_path / f"{i}" / "conformance.json")) for i, c in enumerate(clusters)]


def run(*arguments):
    try:
        main(["compare", *arguments])
    except SystemExit as ended:
        return ended.code
    return 0  # click returns where a command ends well


def test_the_same_outcomes_are_silence(tmp_path, capsys):
    """Two providers that agree on every check: nothing is printed, exit code 0."""
    assert run(*saved(tmp_path, cluster("local", *GOOD), cluster("kind", *GOOD))) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("outcome", ["failed", "error", "xfailed"])
def test_another_outcome_is_told(tmp_path, capsys, outcome):
    """A check that ended otherwise elsewhere is named with both outcomes and the reason; exit code 1."""
    other = [("a", outcome, "because\nof this"), GOOD[1]]
    assert run(*saved(tmp_path, cluster("local", *GOOD), cluster("kind", *other))) == 1
    assert capsys.readouterr().out == f"1.37 gate-on  a\n  kind: {Outcome(outcome)}: because\n  local: passed\n"


@pytest.mark.parametrize("outcome", ["not supported", "skipped"])
def test_what_one_was_not_asked_is_not_compared(tmp_path, capsys, outcome):
    """A check that one provider does not support is no difference; ``--unshared`` lists it with the reason."""
    files = saved(tmp_path, cluster("local", ("a", outcome, "no container I/O"), GOOD[1]), cluster("kind", *GOOD))
    assert run(*files) == 0
    assert capsys.readouterr().out == ""
    assert run("--unshared", *files) == 0
    told = f"1.37 gate-on  a\n  kind: passed\n  local: {outcome}: no container I/O\n"
    assert capsys.readouterr().out == told + "1 checks compared, 0 differ, 1 unshared\n"


def test_a_session_that_ended_early_does_not_agree():
    """What was to run and never came to its turn is a difference: half a run proves nothing."""
    cut = [GOOD[0], ("b", "skipped", ENDED_EARLY)]
    found = compare(conformance(cluster("local", *GOOD), cluster("kind", *cut)))
    assert (found.shared, [d.test for d in found.differences], found.unshared) == (2, ["b"], ())


def test_a_check_that_one_file_lacks_is_unshared():
    """A test that only one run knows is listed, and counts neither as shared nor as a difference."""
    found = compare(conformance(cluster("local", GOOD[0]), cluster("kind", *GOOD)))
    assert (found.shared, found.differences, [d.test for d in found.unshared]) == (1, (), ["b"])


def test_patch_releases_of_one_minor_are_compared():
    """Another patch version of the same minor, as kind's images may have, is compared all the same."""
    wrong = ("a", "failed", "")
    found = compare(conformance(cluster("local", *GOOD), cluster("kind", wrong, version="1.37.1")))
    assert [d.test for d in found.differences] == ["a"]


@pytest.mark.parametrize("other", [{"configuration": "gate-off"}, {"kubernetes": "1.36.3"}], ids=str)
def test_nothing_in_common_is_an_error_not_silence(tmp_path, capsys, other):
    """Results of different releases or configurations cannot agree: exit code 2, and what to do."""
    files = saved(tmp_path, cluster("local", *GOOD), replace(cluster("kind", *GOOD), **other))
    assert run(*files) == 2
    assert "there is nothing to compare" in capsys.readouterr().err


def test_everything_unsupported_is_an_error_not_silence(tmp_path):
    """Where one side judged nothing, agreement is empty: exit code 2."""
    none = [(name, "not supported", "no gate") for name, *_ in GOOD]
    assert run(*saved(tmp_path, cluster("local", *GOOD), cluster("kind", *none))) == 2


def test_a_place_that_cannot_be_used_is_told_in_two_lines(tmp_path, capsys):
    """A file where a directory should be: exit code 2, the path, and what to do."""
    (file,) = saved(tmp_path, cluster("local", *GOOD))
    with pytest.raises(SystemExit) as ended:
        main(["report", file, "-o", f"{file}/below"])
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"error: {file}/below: Not a directory"
    assert said[1].startswith("  to fix: ")
