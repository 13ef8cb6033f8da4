"""What a session that ends early still knows: the tests that never came to their turn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PLUGIN = """
import json, os, pathlib, pytest
from fixtures.clusters import SESSION_DIR
from fixtures.collected import collected
from fixtures.results import outcome_of
from fixtures.reporting import pytest_runtest_makereport

def pytest_configure(config):
    config.stash[SESSION_DIR] = pathlib.Path(os.environ["SESSION"])

@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem():
    made = yield
    for item in made if isinstance(made, list) else ():
        item.user_properties.append(("cluster", "1.37-gate-on"))
    return made

def pytest_runtest_logreport(report):
    if report.outcome != "passed":
        with open(os.environ["SESSION"] + "/outcomes", "a") as file:
            file.write(f"{report.nodeid.split('::')[1]} {report.when} {outcome_of(report)}\\n")

@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(config):
    pathlib.Path(os.environ["SESSION"], "found").write_text(json.dumps(collected(config)))
"""

TESTS = """
import pytest
pytestmark = pytest.mark.behaviour("relaxing")

@pytest.fixture
def broken():
    raise AssertionError("the cluster broke")

def test_a(): assert False
def test_b(): pass
def test_left_out(): pass

@pytest.mark.xfail(raises=AssertionError, strict=True)
def test_gap(): assert False

@pytest.mark.xfail(raises=AssertionError, strict=True)
def test_gap_unseen(broken): assert False

def test_slow_machine():
    from pvaffinity.errors import UserError
    raise UserError("the machine is too busy", "run it again")
"""


def run(tmp_path, *arguments, tests="test_it.py", codes=(1, 2)):
    (tmp_path / "plugin.py").write_text(PLUGIN)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "fixtures.collected", "-p", "plugin", *arguments]
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "SESSION": str(tmp_path), "PATH": ""}
    result = subprocess.run(
        [*command, tests], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode in codes, result.stdout + result.stderr
    return {nodeid.split("::")[1]: why for nodeid, (_, why) in json.loads((tmp_path / "found").read_text()).items()}


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["plain", "xdist"])
def test_what_never_ran_is_known_when_a_session_ends_early(tmp_path, workers):
    """The controller knows every test of the session and what was deselected, also if workers never said goodbye."""
    found = run(tmp_path, "-x", "-k", "not left_out", *workers)
    early = "not run: the session ended early"
    assert found == {
        "test_a": early,
        "test_b": early,
        "test_gap": early,
        "test_gap_unseen": early,
        "test_slow_machine": early,
        "test_left_out": "deselected",
    }


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["plain", "xdist"])
def test_what_was_not_named_is_known(tmp_path, workers):
    """One test chosen by its id: the others of its behaviour count as left out, those of another file, too."""
    (tmp_path / "test_other.py").write_text(TESTS.replace("test_", "test_other_"))
    (tmp_path / "test_rbac.py").write_text('import pytest\n@pytest.mark.behaviour("rbac")\ndef test_view(): pass\n')
    (tmp_path / "test_wrong.py").write_text("not Python")
    found = run(tmp_path, *workers, tests="test_it.py::test_b", codes=(0,))
    assert {name for name, why in found.items() if why != "deselected"} == {"test_b"}
    assert {"test_a", "test_left_out", "test_other_a", "test_other_gap"} < found.keys()
    assert "test_view" not in found


def test_what_was_ignored_is_known(tmp_path):
    """A file left out with ``--ignore`` leaves its behaviour partial, too."""
    (tmp_path / "test_other.py").write_text(TESTS.replace("test_", "test_other_"))
    found = run(tmp_path, "-k", "test_b", "--ignore", "test_other.py", tests=".", codes=(0,))
    assert {name for name, why in found.items() if why != "deselected"} == {"test_b"}
    assert {"test_a", "test_other_a", "test_other_b"} < found.keys()


def test_a_known_gap_excuses_the_test_but_not_its_set_up(tmp_path):
    """An expected failure whose fixture breaks has shown nothing: it was not judged, and fails the session."""
    run(tmp_path)
    outcomes = (tmp_path / "outcomes").read_text().splitlines()
    assert "test_gap call xfailed" in outcomes
    assert "test_gap_unseen setup not judged" in outcomes


def test_a_machine_too_slow_to_judge_accuses_nobody(tmp_path):
    """A test that raises UserError fails the session, but it was not judged: the verdict is not *broken*."""
    run(tmp_path)
    outcomes = (tmp_path / "outcomes").read_text().splitlines()
    assert "test_slow_machine call not judged" in outcomes
    assert "test_a call failed" in outcomes
