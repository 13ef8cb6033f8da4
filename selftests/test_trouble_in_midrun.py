"""A part of a session's own cluster dies in mid-run: what it hit is not judged, the rest holds, and nothing is left.

No check is *broken*: Kubernetes has given no wrong answer. Each session is one that a user would start.
"""

from __future__ import annotations

import shlex

import psutil
import pytest

from pvaffinity import leftovers
from pvaffinity.api import Api
from pvaffinity.errors import ApiError
from pvaffinity.local.binaries import COMPONENTS, ensure
from pvaffinity.local.preflight import try_namespaces
from pvaffinity.versions import load_versions
from selftests.awaiting import eventually
from selftests.midrun import MidRun

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(try_namespaces()[0]), reason="this machine does not allow user namespaces"),
]

GATE = "suites/test_gate_state.py"
RELAXING, GENERATIONS = "suites/test_relaxing.py", "suites/test_disk_generations.py"
ON_BARE = f"{RELAXING}::test_a_removed_affinity_allows_every_node"
UPDATES = "suites/test_immutability.py::test_with_the_gate_on_a_change_is_accepted"
FULL = "database space exceeded"
ROOM = 24 << 20  # bytes for etcd: a new cluster takes a few


@pytest.fixture
def start(named, own_run, tmp_path):
    """Starts a session in a run directory of its own; in the end nothing of it is left, as its own end has seen to."""
    begun = []

    def session(*checks, binaries=None):
        chosen = [f"--binaries={binaries or named}"] if binaries or named else []
        begun.append(MidRun(tmp_path, *chosen, *checks))
        return begun[-1]

    yield session
    left = leftovers.find(everything=True)  # before anything else could clear it away
    assert not left, list(map(str, left))
    assert not list((own_run / "clusters").iterdir())
    assert not list((own_run / "sessions").iterdir())


def judge(session, before, *names, within):
    """It ends with 6 in time, and nothing is broken; answers what has passed, and what was not judged.

    What had passed before still has, and what was not judged says why, by one of these names.
    """
    assert session.end(within) == 6
    results = session.results()
    assert {outcome for outcome, _ in results.values()} <= {"passed", "not judged", "skipped"}, results
    held = {test for test, (outcome, _) in results.items() if outcome == "passed"}
    assert before <= held
    hit = {test: reason for test, (outcome, reason) in results.items() if outcome == "not judged"}
    assert hit
    assert not {test: reason for test, reason in hit.items() if not any(name in reason for name in names)}
    return held, set(hit)


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_a_control_plane_that_is_killed(start, component):
    """SIGKILL: what it hit and what came later is not judged, and its name is why; a dead cluster costs no waits."""
    with start(GATE, RELAXING, GENERATIONS) as session:
        before = session.await_passed(3)
        session.process_of(component).kill()
        _, hit = judge(session, before, component, within=60)
        assert len(hit) > 2


def test_a_kubelet_that_is_killed(start):
    """SIGKILL: checks that need its node are not judged, and its name is why; those of other nodes hold."""
    with start(GATE, GENERATIONS, ON_BARE) as session:
        before = session.await_passed(1)
        session.process_of("kubelet", "--hostname-override=worker2").kill()
        held, hit = judge(session, before, "kubelet-worker2", within=90)
        assert all(test.startswith(GENERATIONS) for test in hit)
        assert any(test.startswith(ON_BARE) for test in held - before)


def test_an_etcd_whose_disk_is_full(start, named, own_run):
    """Etcd takes no more writes: its words are why. A quota stands for the disk: it ends in the same refusal.

    A disk that is full to the last byte makes etcd panic, which is a process that died, as the API server's above.
    """
    real = ensure(load_versions().newest, named=named)
    (binaries := own_run / "binaries").mkdir()
    for name in COMPONENTS:
        (binaries / name).symlink_to(real.path(name))
    (etcd := binaries / "etcd").unlink()
    etcd.write_text(f'#!/bin/sh\nexec {shlex.quote(str(real.path("etcd")))} "$@" --quota-backend-bytes={ROOM}\n')
    etcd.chmod(0o755)
    with start(UPDATES, "-kmerge-patch", binaries=binaries) as session:
        before = session.await_passed(3)
        with pytest.raises(ApiError, match=FULL):
            fill(Api.from_kubeconfig(session.cluster / "admin.kubeconfig"))
        judge(session, before, FULL, within=120)


def fill(api):
    """Make ConfigMaps of a megabyte, more than there is room for."""
    for number in range(ROOM // 500_000):
        metadata = {"name": f"filler-{number}", "namespace": "default"}
        body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"x": "x" * 1_000_000}}
        api.request("POST", "/api/v1/namespaces/default/configmaps", body)


def test_a_worker_that_is_killed(start):
    """SIGKILL: the check that it was in is not judged, and all others are, on the same cluster."""
    with start(GATE, RELAXING) as session:
        before = session.await_passed(2)
        victim = session.workers()[0]
        victim.kill()
        eventually(lambda: not psutil.pid_exists(victim.pid) or victim.status() == psutil.STATUS_ZOMBIE)
        _, hit = judge(session, before, "crashed while running", within=120)
        assert len(hit) == 1
