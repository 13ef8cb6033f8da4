"""However a run ends, every check that was to run has a result, is named, and is in the exit code."""

import time

import pytest

from selftests.pretended import Session
from selftests.test_ending import BAD, GOOD

FOUR = "".join(GOOD.replace("good", f"good_{n}") for n in range(4))
NAMES = {f"test_good_{n}" for n in range(4)}
DYING = """
import os, pytest
@pytest.hookimpl(%s)
def pytest_%s(%s):
    if %s:
        raise %s
"""
FULL = "OSError(28, 'No space left on device')"
WORKER = "'good_1' in item.nodeid"
CONTROLLER = "'good_1' in report.nodeid and 'PYTEST_XDIST_WORKER' not in os.environ"
SLOW = "def test_slow(cluster, tmp_path_factory):\n    open('busy', 'w').close()\n    time.sleep(60)\n"


@pytest.fixture
def session(tmp_path):
    made = Session(tmp_path)
    yield made
    made.close()


def appears(path):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


def test_two_sessions_keep_out_of_each_others_reports(session):
    """The second is told to name another directory, in two lines, and touches nothing of the first."""
    first = session.start(SLOW + GOOD)
    try:
        appears(session.directory / "busy")
        (mine := session.directory / "reports/allure-results/mine").touch()
        code, said = session("")
        assert code == 4
        assert "ERROR: --reports: another session is writing to reports\n" in said
        assert said.rstrip().endswith("to fix: name another directory: --reports DIR")
        assert mine.exists()
        assert session("", "-k", "good", "--reports=mine", "--basetemp=mine")[0] == 0
    finally:
        first.kill()
        first.communicate()
    assert session("", "-k", "good")[0] == 0  # a killed session holds nothing


def test_a_worker_that_is_killed_leaves_its_check_not_judged(session):
    """SIGKILL in mid-test: that check is not judged, by xdist's words; the others are."""
    killed = "def test_killed(cluster): os.kill(os.getpid(), signal.SIGKILL)\n"
    code, said = session(killed + FOUR, "-n1")
    assert code == 6, said
    assert "1 check of 5 not judged" in said
    assert "1 not judged in " in said
    assert " failed" not in said
    found = session.found("outcome")
    assert {name for name, outcome in found.items() if outcome == "passed"} == NAMES
    assert "crashed while running" in str(session.found("reason")["test_killed"])


@pytest.mark.parametrize("workers", [(), ("-n2", "--dist=worksteal")], ids=["plain", "xdist"])
@pytest.mark.parametrize(
    "hook,argument,condition,error",
    [
        ("runtest_logreport", "report", CONTROLLER, "RuntimeError('a plugin died')"),
        ("runtest_makereport", "item", WORKER, "RuntimeError('a plugin died')"),
        ("runtest_makereport", "item", WORKER, FULL),
        ("sessionfinish", "", "'PYTEST_XDIST_WORKER' not in os.environ", FULL),
    ],
    ids=["controller", "test", "full disk", "end"],
)
def test_an_internal_error_loses_no_check(session, hook, argument, condition, error, workers):
    """A plugin that dies ends the session; what has no result is not judged, and the report is written all the same."""
    session.conftest(DYING % ("tryfirst=True", hook, argument, condition, error))
    code, said = session(FOUR, *workers)
    found = session.found("outcome")
    assert found.keys() == NAMES, said
    lost = [name for name, outcome in found.items() if outcome != "passed"]
    assert code == (6 if lost else 3), said
    assert bool(lost) == (hook != "sessionfinish"), said
    last = said.splitlines()[-1]
    assert "the session met an internal error" in last
    if lost:
        assert f"{len(lost)} check" in last
        assert all(name in last for name in lost)


def test_a_reports_directory_without_room_is_told_and_loses_no_failure(session):
    """The report cannot be written: exit code 4, the table and the last line all the same; 1 if something is broken."""
    full = f"from fixtures import reporting\ndef no(*a, **k): raise {FULL}\nreporting.write = no"
    session.conftest(full)
    code, said = session(GOOD)
    assert code == 4, said
    assert "cannot be written to" in said
    assert said.splitlines()[-1].startswith("exit code 4: ")
    assert session(BAD)[0] == 1


def test_a_session_without_room_for_files_ends_with_a_result(session):
    """No file may grow (RLIMIT_FSIZE, as on a full disk): Allure's plugin dies of it, and the check is not judged."""
    limit = "import resource\n    resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))"
    session.conftest(f"def pytest_runtest_setup(item):\n    {limit}")
    code, said = session(FOUR, "-n1")
    assert code == 6, said
    assert session.found("outcome").keys() == NAMES


def test_a_session_stopped_by_its_first_failure_is_broken(session):
    """With -x, what never ran is not judged, and what failed is broken: 1."""
    for workers in ((), ("-n1",)):
        code, said = session(BAD + FOUR, "-x", *workers)
        assert code == 1, said
        assert "4 checks of 5 not judged" in said or "3 checks of 5 not judged" in said
