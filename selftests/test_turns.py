"""A cluster is used by many at once or by one alone, over processes, whatever ends them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pvaffinity import turns
from selftests.holding import holders

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def other(tmp_path):
    with holders(tmp_path) as start:
        yield start


def test_many_share_and_one_alone_waits_for_all_of_them(tmp_path, other):
    """Two share at once; who wants it alone gets it when both are done, and then no other does."""
    with turns.shared(tmp_path):
        second = other("shared")
        assert second.has_it(60)
        single = other("alone")
        assert not single.has_it(1)
        second.done()
        assert not single.has_it(0.5)
    assert single.has_it(60)
    late = other("shared")
    assert not late.has_it(1)
    single.done()
    assert late.has_it(60)


def test_who_waits_for_it_alone_is_not_overtaken_for_ever(tmp_path, other):
    """While somebody waits for it alone, new ones do not get in before."""
    with turns.shared(tmp_path):
        single = other("alone")
        assert not single.has_it(1)
        late = other("shared")
        assert not late.has_it(1)
    assert single.has_it(60)
    assert not late.has_it(0.5)
    single.done()
    assert late.has_it(60)


@pytest.mark.parametrize("take", ["shared", "alone"])
def test_a_turn_ends_with_the_process_that_has_it(tmp_path, other, take):
    """After SIGKILL the next one gets its turn."""
    first = other(take)
    assert first.has_it(60)
    os.kill(first.process.pid, signal.SIGKILL)
    with turns.alone(tmp_path):
        pass


@pytest.mark.parametrize(("outer", "inner"), [("shared", "shared"), ("alone", "shared"), ("alone", "alone")])
def test_one_process_does_not_wait_for_itself(tmp_path, outer, inner):
    """Within a turn, another one is part of it; afterwards everything is given back."""
    with getattr(turns, outer)(tmp_path), getattr(turns, inner)(tmp_path):
        pass
    with pytest.raises(KeyError, match="x"), turns.shared(tmp_path):
        raise KeyError("x")
    with turns.alone(tmp_path):
        pass


def test_who_shares_it_is_not_given_it_alone(tmp_path):
    """Others may be in at the same time, and waiting for them could take for ever; alone is refused, not pretended."""
    with turns.shared(tmp_path):
        with pytest.raises(RuntimeError, match="shared already"), turns.alone(tmp_path):
            pytest.fail("another may be in")
        with turns.shared(tmp_path):
            pass
    with turns.alone(tmp_path), turns.shared(tmp_path), turns.alone(tmp_path):
        pass


def test_a_turn_costs_next_to_nothing(tmp_path):
    """Less than 1 ms, at the best of many."""
    times = []
    for _ in range(50):
        started = time.perf_counter()
        with turns.shared(tmp_path):
            pass
        times.append(time.perf_counter() - started)
    assert min(times) < 0.001


def test_a_cluster_that_was_altered_and_not_restored_is_lent_to_nobody(tmp_path):
    """The error says what was done to it; once it was restored, the next one gets it."""
    with turns.alone(tmp_path), turns.altered(tmp_path, "kube-scheduler was stopped") as restored:
        with turns.altered(tmp_path, "kube-apiserver was started with --v=9") as inner:
            inner()
        assert (tmp_path / "altered").read_text() == "kube-scheduler was stopped"
        restored()
    with turns.shared(tmp_path):
        pass
    with pytest.raises(RuntimeError), turns.alone(tmp_path), turns.altered(tmp_path, "kube-scheduler was stopped"):
        raise RuntimeError("it does not start")
    for take in (turns.shared, turns.alone):
        with pytest.raises(turns.AlteredError, match="kube-scheduler was stopped, and it was not restored"):
            with take(tmp_path):
                pytest.fail("a broken cluster was lent")


def test_a_mark_that_was_cut_off_still_counts(tmp_path):
    """Who is killed while writing down what is altered leaves a cluster that nobody gets."""
    (tmp_path / "altered").touch()
    with pytest.raises(turns.AlteredError), turns.shared(tmp_path):
        pytest.fail("a broken cluster was lent")


CONFTEST = """
import os, pathlib, time, types
import pytest
from fixtures.clusters import SESSION_DIR
pytest_plugins = ["fixtures.components"]

def pytest_configure(config):
    config.stash[SESSION_DIR] = pathlib.Path(os.environ["CLUSTERS"])

@pytest.fixture(autouse=True)
def _powers(): pass

@pytest.fixture(scope="session", params=os.environ["NAMES"].split())
def cluster(request):
    directory = pathlib.Path(os.environ["CLUSTERS"], request.param)
    directory.mkdir(exist_ok=True)
    return types.SimpleNamespace(cluster=types.SimpleNamespace(directory=directory))

@pytest.fixture
def use(cluster, request):
    log = pathlib.Path(os.environ["CLUSTERS"], "log")
    def say(what):
        with log.open("a") as out: out.write(f"{request.node.name.split('[')[0]} {what}\\n")
    say("begins")
    yield
    time.sleep(0.05)
    say("ends")

@pytest.fixture
def timeline(): pass
"""

TESTS = """
import os, time
import pytest

@pytest.mark.parametrize("n", range(12))
def test_many(use, n): time.sleep(0.05)

@pytest.mark.alone
@pytest.mark.parametrize("n", range(3))
def test_alone(use, n): time.sleep(0.05)

@pytest.mark.alone
def test_alone_fails(use): assert False

def test_without_a_cluster(): pass
"""


def _pytest(tmp_path, tests, *options, clusters="one"):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(tests)
    (tmp_path / "clusters").mkdir(exist_ok=True)
    env = os.environ | {"PYTHONPATH": str(ROOT), "CLUSTERS": str(tmp_path / "clusters"), "NAMES": clusters}
    # An ini file of its own, or pytest would take the project's root and its conftest.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:kind", *options, str(tmp_path)]
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_a_test_marked_alone_has_its_cluster_alone_in_all_workers(tmp_path):
    """Under -n 2 no other test, set-up and teardown included, is on the cluster meanwhile; others run side by side."""
    result = _pytest(tmp_path, TESTS, "-n", "2")
    assert "16 passed" in result.stdout, result.stdout + result.stderr
    assert "1 failed" in result.stdout
    assert _alone_was_alone(tmp_path), "nothing ran side by side, so that nothing was shown"


def _alone_was_alone(tmp_path):
    """Fails if anything ran beside a test that was to be alone; says whether others ran side by side."""
    within, together = [], False
    for line in (tmp_path / "clusters" / "log").read_text().splitlines():
        name, what = line.split()
        if what == "ends":
            within.remove(name)
            continue
        within.append(name)
        together = together or within.count("test_many") == 2
        assert len(within) == 1 or not any(other.startswith("test_alone") for other in within), within
    return together


SESSION = """
import time
import pytest

@pytest.mark.alone("session")
def test_alone(use): time.sleep(0.3)

@pytest.mark.parametrize("n", range(6))
def test_many(use, n): time.sleep(0.1)
"""


def test_a_test_may_have_the_whole_session_alone(tmp_path):
    """No test of another cluster runs meanwhile either."""
    result = _pytest(tmp_path, SESSION, "-n", "2", clusters="one other")
    assert "14 passed" in result.stdout, result.stdout + result.stderr
    assert _alone_was_alone(tmp_path), "nothing ran side by side, so that nothing was shown"


def test_who_wants_something_alone_comes_last(tmp_path):
    """Others first, then tests that want their cluster alone, then those that want the session."""
    tests = f"{SESSION}\n@pytest.mark.alone\ndef test_cluster_alone(use): pass\n\ndef test_plain(use): pass\n"
    order = _pytest(tmp_path, tests, "--collect-only", "-q", clusters="one other").stdout.splitlines()
    names = [line.partition("::")[2].partition("[")[0] for line in order if "::" in line]
    assert names[-4:] == ["test_cluster_alone"] * 2 + ["test_alone"] * 2


SLOW = """
import pytest

@pytest.mark.parametrize("n", range(4))
def test_quick(use, n): pass

@pytest.mark.slow
def test_slow(use): pass

@pytest.mark.alone
@pytest.mark.slow
def test_slow_alone(use): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_slow_tests_come_first_where_there_are_workers(tmp_path, workers):
    """Workers go on beside them; in one process they stay in place; what wants its cluster alone is last anyway."""
    lines = _pytest(tmp_path, SLOW, "-v", *workers).stdout.splitlines()
    names = [line.partition("::")[2].partition("[")[0] for line in lines if "PASSED" in line]
    slow = ["test_slow", *["test_quick"] * 4] if workers else [*["test_quick"] * 4, "test_slow"]
    assert names == [*slow, "test_slow_alone"]


CRASH = """
import os, signal, time
import pytest
from pvaffinity import turns

@pytest.mark.alone
def test_crash(use, cluster):
    with turns.altered(cluster.cluster.directory, "kube-apiserver was started with --v=9"):
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.alone
@pytest.mark.parametrize("n", range(4))
def test_later(use, n): time.sleep(1)
"""


def test_a_worker_that_dies_in_the_middle_leaves_a_cluster_that_no_other_test_gets(tmp_path):
    """The session goes on to its end; tests that come after the crash fail and say what happened to the cluster."""
    result = _pytest(tmp_path, CRASH, "-n", "2")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "crashed while running" in result.stdout
    assert "one is not as configured any more: kube-apiserver was started with --v=9" in result.stdout
    assert "Traceback" not in result.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize("argument", ['"sesion"', 'scope="session"'])
def test_a_misspelt_marker_is_no_other_marker(tmp_path, workers, argument):
    """``alone("sesion")`` is refused before anything runs, instead of having only its cluster alone."""
    tests = f"import pytest\n@pytest.mark.alone({argument})\ndef test_it(use): pass"
    result = _pytest(tmp_path, tests, *workers)
    assert "is unknown; use alone or alone(" in result.stdout, result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert result.returncode in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED)  # xdist has its own
    assert not (tmp_path / "clusters" / "log").exists()


def test_components_are_for_tests_that_have_the_cluster_alone(tmp_path):
    """A test that would stop a component under others is refused before it does."""
    result = _pytest(tmp_path, "def test_it(components): pass")
    assert "needs @pytest.mark.alone" in result.stdout
