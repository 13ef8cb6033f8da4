"""What the controller makes of reports: a test cut off in the middle, or whose worker crashed, has not passed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.collected import DESELECTED
from fixtures.results import Results
from pvaffinity.report import Outcome

PROPERTIES = {"cluster": "1.37-gate-on", "behaviour": "relaxing", "title": "A guarantee.", "core": True}

ROOT = Path(__file__).resolve().parents[1]


def results(*phases, outcome="passed", crashed=False, why="not run: the session ended early", **properties):
    found = Results()
    mine = PROPERTIES | properties
    if phases:
        found.pytest_runtest_logstart("t")
    for phase in phases:
        ended = outcome if phase == phases[-1] else "passed"
        longrepr = None if ended == "passed" else "AssertionError: no"
        found.pytest_runtest_logreport(
            pytest.TestReport("t", ("t.py", 1, "t"), {}, ended, longrepr, phase, user_properties=list(mine.items()))
        )
    if crashed:
        report = pytest.TestReport("t", ("t.py", None, "t.py"), (), "failed", "worker 'gw0' crashed", "???")
        found.pytest_runtest_logreport(report)
    found.left_out({"t": (mine, why)})
    return found.tests["t"]


def test_a_test_that_came_to_its_end_has_passed():
    """Set-up, call and teardown passed: only then is it a pass."""
    assert results("setup", "call", "teardown").outcome is Outcome.PASSED


@pytest.mark.parametrize("phases", [("setup",), ("setup", "call")], ids=len)
def test_a_test_that_was_cut_off_is_not_judged(phases):
    """Ctrl-C in the middle of a test leaves a set-up that passed and nothing else: that is no pass."""
    found = results(*phases)
    assert (found.outcome, found.reason) == (Outcome.NOT_JUDGED, "cut off: the session ended in the middle of it")


def test_a_failure_stays_one_when_the_teardown_is_cut_off():
    """What had failed before the session ended is broken all the same."""
    assert results("setup", "call", outcome="failed").outcome is Outcome.FAILED


@pytest.mark.parametrize("phases", [(), ("setup",)], ids=len)
def test_a_worker_that_crashes_leaves_a_check_not_judged(phases):
    """Xdist reports a crash without the test's properties: the test was not judged, with xdist's words."""
    found = results(*phases, crashed=True)
    assert (found.outcome, found.reason) == (Outcome.NOT_JUDGED, "worker 'gw0' crashed")


def test_only_who_leaves_a_test_out_on_purpose_may_do_without_it():
    """Deselected, it was left out; never come to, it was not judged."""
    assert results(why=DESELECTED).outcome is Outcome.SKIPPED
    assert results().outcome is Outcome.NOT_JUDGED


LOST = """
from fixtures.reporting import _not_written
from pathlib import Path

def pytest_addoption(parser):
    parser.addoption("--lost", action="store_true")

def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--lost"):
        _not_written(terminalreporter, config, Path("reports"), OSError(28, "No space left on device"))
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=len)
@pytest.mark.parametrize(
    "test,options,code", [("assert True", (), 0), ("assert True", ("--lost",), 4), ("assert False", ("--lost",), 1)]
)
def test_a_session_whose_report_is_lost_does_not_end_well(tmp_path, test, options, code, workers):
    """The report cannot be written: told with what to do, and exit code 4, unless there is a worse one already."""
    (tmp_path / "conftest.py").write_text(LOST)
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {test}\n")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", *workers, f"--rootdir={tmp_path}", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("to fix: make room there, or name another directory: --reports DIR" in done.stdout) == bool(options)


def test_the_time_of_a_cluster_is_that_of_the_clock():
    """Two workers that run tests, or wait for the same cluster, at the same time take that time once, not twice."""
    found = Results()
    mine, other = (list((PROPERTIES | {"cluster": name}).items()) for name in ("mine", "other"))
    spans = [("setup", 100.0, 700.0, mine), ("setup", 101.0, 700.0, mine), ("call", 700.0, 710.0, mine)]
    spans += [("teardown", 710.0, 712.24, mine), ("call", 705.0, 709.0, mine), ("setup", 900.0, 950.0, other)]
    for number, (phase, start, stop, properties) in enumerate(spans):
        found.pytest_runtest_logreport(
            pytest.TestReport(
                f"t{number}", ("t.py", 1, "t"), {}, "passed", None, phase, (), stop - start, start, stop, properties
            )
        )
    assert (found.seconds("mine"), found.seconds("other"), found.seconds("never")) == (612.2, 50.0, 0.0)
