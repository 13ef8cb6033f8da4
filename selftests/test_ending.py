"""How a session ends: each exit code, its last line, and the command to repeat just what was not judged."""

import shlex
import subprocess
from xml.etree import ElementTree

import pytest

from selftests.pretended import Session

GOOD = "def test_good(cluster): pass\n"
BAD = "def test_bad(cluster): assert False\n"
LOST = "def test_lost(cluster): raise NotJudgedError('the server is away')\n"
NOT_HERE = "def test_not_here(cluster): pytest.skip('not supported: no second zone')\n"
LEFT = "def test_left(cluster): pytest.skip('left out')\n"
SET_UP = "@pytest.fixture\ndef gone(cluster): raise AssertionError('gone')\ndef test_set_up(gone): pass\n"
TEARDOWN = "@pytest.fixture\ndef stays(cluster):\n    yield\n    assert not 'stays'\ndef test_end(stays): pass\n"
OWN = "def test_own(cluster): {}['spec']\n"
SAID = "def test_said(cluster): pytest.fail('wrong')\n"
GAP = "@pytest.mark.xfail(raises=AssertionError)\n"


@pytest.fixture
def session(tmp_path):
    made = Session(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "tests,code,last",
    [
        (GOOD + LEFT, 0, "exit code 0: all that was asked for holds"),
        (GOOD + NOT_HERE, 0, "exit code 0: all that was asked for holds; 1 check not supported here"),
        (GOOD + GAP + BAD, 0, "exit code 0: all that was asked for holds"),
        (GOOD + BAD + LOST, 1, "exit code 1: 1 check broken; 1 check of 3 not judged"),
        (GAP + GOOD, 1, "exit code 1: 1 check broken"),
        (GOOD + SAID + OWN, 1, "exit code 1: 1 check broken; 1 check of 3 not judged"),
        (GOOD + LOST, 6, "exit code 6: nothing is broken; 1 check of 2 not judged; to repeat just that: pytest "),
        (GOOD + SET_UP, 6, "exit code 6: nothing is broken; 1 check of 2 not judged"),
        (GOOD + TEARDOWN, 6, "exit code 6: nothing is broken; 1 check of 2 not judged"),
        (GOOD + GAP + LOST, 6, "exit code 6: nothing is broken; 1 check of 2 not judged"),
        (LOST, 6, "exit code 6: nothing is broken; 1 check of 1 not judged"),
        (NOT_HERE + LEFT, 5, "exit code 5: nothing was judged"),
    ],
)
def test_exit_code_and_last_line_say_the_same(session, tests, code, last):
    """Broken is 1, not judged is 6, and what is left out or not supported changes nothing."""
    found, said = session(tests, *(["-n1"] if LOST in tests else []))
    assert found == code, said
    assert said.splitlines()[-1].startswith(last), said


def test_a_fault_of_the_suites_own_is_told_as_one_with_its_stack(session):
    """It accuses nobody, in JUnit neither, and whoever mends the suite sees where it was."""
    code, said = session(OWN)
    assert code == 6, said
    assert "def test_own(cluster): {}['spec']" in said
    assert session.found("outcome", "reason") == {"test_own": ("not judged", "the suite itself: KeyError: 'spec'")}
    suite = ElementTree.parse(session.directory / "reports/junit.xml").getroot().find("testsuite")
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


def test_a_cluster_that_cannot_be_made_is_a_usage_error_unless_something_is_broken(session):
    """Exit code 4 and the reason; no second try. A failure elsewhere in the session makes it 1."""
    code, said = session(GOOD, NO_CLUSTER="1")
    assert (code, said.splitlines()[-1].partition(":")[0]) == (4, "exit code 4"), said
    assert "there is no room" in said
    assert "is it usable?" not in said
    more = "pytestmark = []\ndef test_no_check(): assert False\n"
    code, said = session(GOOD.replace("def", HERE + "def") + more, NO_CLUSTER="1")
    assert code == 1, said


HERE = "@pytest.mark.behaviour('relaxing')\n@pytest.mark.cluster('gate-on')\n"


def test_the_command_of_the_last_line_repeats_what_was_not_judged(session):
    """Pasted, it runs these checks and no other, with the options of the session; results go beside the others."""
    lost = "".join(LOST.replace("lost", f"lost_{n}") for n in range(7))
    for tests, count in ((GOOD + LOST, 1), (GOOD + lost, 7)):
        _, said = session(tests, "-k", "good or lost", "-q", "-n1")
        line = said.splitlines()[-1]
        assert [option in line for option in ("-q", "-n1", "-k")] == [True, True, False], line
        words = shlex.split(line.partition("just that: ")[2])
        command = session.command("")[:4] + words[1:]
        again = subprocess.run(
            command, cwd=session.directory, env=session.environment(), capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert again.returncode == 6, again.stdout + again.stderr
        assert f"{count} not judged" in again.stdout
        assert "passed" not in again.stdout
        assert (session.directory / "reports/again/conformance.json").exists()


def test_what_was_not_judged_is_told_in_one_line_and_is_no_failure(session):
    """Neither in pytest's words, nor in JUnit's, nor in Allure's; a failure is one in all three."""
    _, said = session(LOST + BAD)
    assert "1 failed, " in said
    assert ", 1 not judged in " in said
    assert said.count("the server is away") == 1
    assert said.count("NotJudgedError") == 0
    suite = ElementTree.parse(session.directory / "reports/junit.xml").getroot().find("testsuite")
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    said = [[child.tag for child in case if child.tag != "properties"] for case in suite.iter("testcase")]
    assert said == [["skipped"], ["error"], ["failure"]]
    results = [path.read_text() for path in (session.directory / "reports/allure-results").glob("*-result.json")]
    status = {("lost" if "test_lost" in text else "bad"): '"status": "broken"' in text for text in results}
    assert status == {"lost": True, "bad": False}
