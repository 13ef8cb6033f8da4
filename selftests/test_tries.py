"""A check that was not judged is tried once more on a usable cluster; one that was judged never is."""

import pytest

from selftests.pretended import Session
from selftests.test_ending import BAD, GOOD, LOST, TEARDOWN

COUNT = """
TRIES = []
@pytest.fixture
def fresh(cluster):
    TRIES.append("set up")
    if len(TRIES) == 1 and os.environ.get("WHERE") == "setup":
        raise AssertionError("the volume is not there")
    yield
    TRIES.append("cleared away")

def test_second(fresh, request):
    if len(TRIES) == 1 and os.environ.get("WHERE") == "call":
        raise ConnectionResetError("reset by peer")
    assert os.environ.get("SECOND") != "bad"
"""
SESSION_FIXTURE = """
MADE = []
@pytest.fixture(scope="session")
def shared(cluster):
    MADE.append(1)
    assert len(MADE) > 1, "not yet"
def test_second(shared): pass
"""


@pytest.fixture
def session(tmp_path):
    made = Session(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "where,second,code,outcome",
    [("call", "", 0, "passed"), ("setup", "", 0, "passed"), ("call", "bad", 1, "failed")],
)
@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["plain", "xdist"])
def test_the_second_try_counts_and_the_first_is_told(session, where, second, code, outcome, workers):
    """Its answer is the result, also where it is *broken*; conformance.json says why the first was not judged."""
    found, said = session(COUNT, *workers, WHERE=where, SECOND=second)
    assert found == code, said
    why = "reset by peer" if where == "call" else "the volume is not there"
    ((got, first),) = session.found("outcome", "first_try").values()
    assert got == outcome
    assert why in first
    assert "1 tried again" in said


def test_a_fixture_of_the_session_is_made_anew(session):
    """What failed in the first try's set-up is no longer remembered as failed in the second."""
    assert session(SESSION_FIXTURE)[0] == 0


def test_what_was_judged_is_never_tried_again(session):
    """Neither a failure, nor a pass whose teardown broke."""
    code, said = session(GOOD + BAD + TEARDOWN)
    assert code == 1
    assert "tried again" not in said
    assert session.found("outcome", "first_try") == {
        "test_good": ("passed", ""), "test_bad": ("failed", ""), "test_end": ("not judged", "")
    }  # fmt: skip


def test_where_the_cluster_is_not_usable_there_is_no_second_try(session):
    """That is added to the reason, and the next check does not wait for it again."""
    code, said = session(LOST + LOST.replace("lost", "lost_too"), "-s", UNUSABLE="1")
    assert code == 6
    assert said.count("is it usable?") == 1
    why = "the server is away; not tried again, the cluster is not usable: pod pv-usable/0 did not run within 180 s"
    assert session.found("reason", "first_try") == {"test_lost": (why, ""), "test_lost_too": (why, "")}


def test_a_cluster_of_dead_components_is_not_waited_for(session):
    """What is dead is known at once, and is named for every check that it hit, in whichever phase; the rest holds."""
    dead = "not running in cluster c: etcd"
    code, said = session(GOOD + LOST + TEARDOWN, "-s", DEAD=dead)
    assert code == 6
    assert "is it usable?" not in said
    why = f"the server is away; not tried again, the cluster is not usable: {dead}"
    found = session.found("outcome", "reason")
    assert (found["test_good"], found["test_lost"]) == (("passed", ""), ("not judged", why))
    outcome, reason = found["test_end"]
    assert outcome == "not judged"
    assert reason.endswith(f"; {dead}")


def test_the_first_reason_is_told(session):
    """Where neither a check nor its teardown could be judged, the result says why the check was not."""
    both = TEARDOWN.replace("def test_end(stays): pass", "def test_end(stays): raise NotJudgedError('away')")
    assert session(both, UNUSABLE="1")[0] == 6
    (reason,) = session.found("reason").values()
    assert reason.startswith("away; not tried again")


def test_evidence_of_the_first_try_is_kept(session):
    """Beside that of the second, in a directory whose name says so."""
    session.conftest("from fixtures import evidence\nevidence._gather = lambda d, *_: (d.mkdir(parents=True), [])[1]")
    session(LOST)
    names = sorted(path.name for path in (session.directory / "reports/evidence").iterdir())
    assert names == ["test_it.py_test_lost_1.37-gate-on_", "test_it.py_test_lost_1.37-gate-on_-first-try"]


def test_a_crash_in_the_second_try_is_not_judged(session):
    """The first try's end is not taken for the test's: a worker that dies in the second leaves no result."""
    code, said = session("TRIES = []\ndef test_a(cluster):\n    TRIES.append(1)\n    if len(TRIES) > 1: os._exit(1)\n"
        "    raise ConnectionResetError('reset')\n", "-n1")  # fmt: skip
    assert code == 6, said
    ((outcome, reason),) = session.found("outcome", "reason").values()
    assert outcome == "not judged"
    assert "crashed" in reason
