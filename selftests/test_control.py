"""Who asks a supervisor is told the truth when no answer comes: it has ended, or it is slow."""

import contextlib
import socket
import tempfile
from pathlib import Path

import pytest

from pvaffinity.errors import UserError
from pvaffinity.local import control
from pvaffinity.providers import local
from pvaffinity.providers.base import Cluster
from pvaffinity.providers.local import LocalProvider


@pytest.fixture
def ended():
    """A cluster's directory (a short one: a socket lies in it) without a supervisor."""
    with tempfile.TemporaryDirectory(prefix="pvc-", dir="/tmp") as name:
        directory = Path(name)
        yield Cluster("c", "local", "1.37.2", "gate-on", directory, directory / "k", None, frozenset())


@contextlib.contextmanager
def deaf(directory):
    """Somebody who listens there and never answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "control.sock"))
        listener.listen(4)
        yield


def test_a_slow_answer_is_no_end(ended, monkeypatch):
    """A supervisor that is there and does not answer is told as such, with the order and the time it had."""
    monkeypatch.setattr(local, "_ANSWER", 0.2)
    with deaf(ended.directory):
        with pytest.raises(control.SlowError, match=r"status was not answered within 0\.1 s"):
            control.ask(ended.directory, "status", timeout=0.1)
        with pytest.raises(UserError) as caught:
            LocalProvider().stop_component(ended, "kube-scheduler")
    assert caught.value.what == "cluster c does not answer: the order component-stop was not answered within 0.2 s"
    assert "supervisor.log" in caught.value.fix


def test_an_end_is_told_as_one(ended):
    """Where nobody listens any more, the cluster has ended."""
    with pytest.raises(control.NoSupervisorError):
        control.ask(ended.directory, "status")
    with pytest.raises(UserError, match="cluster c has ended"):
        LocalProvider().stop_component(ended, "kube-scheduler")
    with deaf(ended.directory):
        pass
    with pytest.raises(UserError, match="cluster c has ended"):
        LocalProvider().stop_component(ended, "kube-scheduler")


def test_what_is_dead_is_told_of_all_components_or_of_some(ended, monkeypatch):
    """The supervisor's word; an end of the whole cluster is one of each component, and slowness is none of any."""
    dead = {"etcd": {"running": True}, "kubelet-worker": {"running": False}, "kubelet-worker2": {"running": False}}
    provider = LocalProvider()
    assert provider.ailing(ended, "etcd") == "cluster c has ended"
    monkeypatch.setattr(control, "ask", lambda *_, **__: {"daemons": dead})
    assert provider.ailing(ended) == "not running in cluster c: kubelet-worker, kubelet-worker2"
    assert provider.ailing(ended, "kubelet-worker2") == "not running in cluster c: kubelet-worker2"
    assert provider.ailing(ended, "etcd") == ""

    def slow(*_, **__):
        raise control.SlowError("the order status was not answered within 5 s")

    monkeypatch.setattr(control, "ask", slow)
    assert provider.ailing(ended, "etcd") == ""
    assert "does not answer" in provider.ailing(ended)


def test_a_component_has_the_budget_of_its_name(ended, monkeypatch):
    """The order to start one says how long it may take, and the answer is awaited for longer."""
    asked = []

    def ask(directory, order, **about):
        asked.append((order, about))
        return {"ok": True}

    monkeypatch.setattr(control, "ask", ask)
    (ended.directory / "spec.json").write_text('{"daemons": [{"name": "kube-scheduler", "argv": ["x"]}]}')
    LocalProvider().start_component(ended, "kube-scheduler", {"v": "4"})
    [(order, about)] = asked
    assert (order, about["argv"], about["seconds"]) == ("component-start", ["x", "--v=4"], 120)
    assert about["timeout"] > about["seconds"]
