"""Stopping and restarting components restores the cluster always, and says loudly when it cannot."""

import types

import pytest

from pvaffinity import components, turns
from pvaffinity.components import Components
from pvaffinity.errors import UserError


class Recorder:
    """A provider that writes down what it is asked, and fails where it is told to."""

    def __init__(self, fails=()):
        self.done, self.fails = [], list(fails)

    def stop_component(self, cluster, component):
        self._do(f"stop {component}")

    def start_component(self, cluster, component, flags=types.MappingProxyType({})):
        self._do(" ".join([f"start {component}", *(f"{k}={v}" for k, v in flags.items())]))

    def _do(self, what):
        self.done.append(what)
        if what in self.fails:
            raise UserError(f"{what} failed", "see its log", detail="the log's end")


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Components over a recorder, on a cluster that is usable at once."""

    def make(*fails):
        provider = Recorder(fails)
        monkeypatch.setattr(components, "await_usable", lambda api, nodes: provider.done.append("usable"))
        cluster = types.SimpleNamespace(directory=tmp_path, name="c")
        return Components(provider, cluster, None, ()), provider.done

    return make


def lent(tmp_path):
    """Whether the next one gets the cluster."""
    try:
        with turns.shared(tmp_path):
            return True
    except turns.AlteredError:
        return False


def test_a_stopped_component_is_started_and_the_cluster_awaited(make, tmp_path):
    """Without a component nothing is awaited; afterwards the cluster is usable and lent again."""
    ours, done = make()
    with ours.stopped("kube-scheduler"):
        assert done == ["stop kube-scheduler"]
        assert not lent(tmp_path)
    assert done[1:] == ["start kube-scheduler", "usable"]
    assert lent(tmp_path)


def test_flags_hold_while_it_lasts(make, tmp_path):
    """The cluster is usable with the flags, and again without them."""
    ours, done = make()
    with ours.running_with("kube-apiserver", {"v": "4"}):
        assert done == ["start kube-apiserver v=4", "usable"]
    assert done[2:] == ["start kube-apiserver", "usable"]
    assert lent(tmp_path)


@pytest.mark.parametrize("failure", [AssertionError, KeyboardInterrupt, pytest.fail.Exception])
def test_it_is_restored_whatever_ends_the_test(make, tmp_path, failure):
    """A failure, Ctrl-C or a skip inside goes on outside, after everything was restored."""
    ours, done = make()
    with pytest.raises(failure), ours.stopped("kube-scheduler"):
        raise failure("x")
    assert done[-2:] == ["start kube-scheduler", "usable"]
    assert lent(tmp_path)


def test_flags_that_do_not_work_are_the_error_and_are_taken_back(make, tmp_path):
    """What the component says of its flags is told; it runs as configured again."""
    ours, done = make("start kube-apiserver nonsense=1")
    with pytest.raises(UserError, match="nonsense=1 failed"):
        with ours.running_with("kube-apiserver", {"nonsense": "1"}):
            pytest.fail("it does not run")
    assert done[-2:] == ["start kube-apiserver", "usable"]
    assert lent(tmp_path)


def test_what_cannot_be_restored_is_told_and_lent_to_nobody(make, tmp_path):
    """The error says what was done, and why it could not be undone; nobody gets the cluster any more."""
    ours, _ = make("start kube-scheduler")
    with pytest.raises(UserError) as caught, ours.stopped("kube-scheduler"):
        pass
    assert caught.value.what == (
        "kube-scheduler was stopped, and cluster c could not be restored: start kube-scheduler failed"
    )
    assert caught.value.detail == "the log's end"
    assert not lent(tmp_path)


@pytest.mark.parametrize("failure", [AssertionError, KeyboardInterrupt, pytest.fail.Exception])
def test_a_finding_stays_one_when_the_cluster_cannot_be_restored_either(make, tmp_path, failure):
    """What ended the test goes on, with what could not be undone as a note; nobody gets the cluster any more."""
    ours, _ = make("start kube-scheduler")
    with pytest.raises(failure, match="a pod escaped") as caught, ours.stopped("kube-scheduler"):
        raise failure("a pod escaped")
    [note] = caught.value.__notes__
    assert "cluster c could not be restored: start kube-scheduler failed" in note
    assert "the log's end" in note
    assert not lent(tmp_path)


def test_what_was_restored_around_it_does_not_hide_what_was_not(make, tmp_path):
    """One of two alterations that cannot be undone keeps the cluster from others, though the outer one was undone."""
    ours, done = make("start kube-apiserver")
    with pytest.raises(UserError, match="could not be restored"), ours.stopped("kube-scheduler"):
        with ours.running_with("kube-apiserver", {"v": "4"}):
            pass
    assert done[-2:] == ["start kube-scheduler", "usable"]
    with pytest.raises(turns.AlteredError, match=r": kube-apiserver was started with --v=4, and it was not"):
        with turns.shared(tmp_path):
            pytest.fail("a broken cluster was lent")


def test_one_within_another_waits_only_for_what_can_be(make, tmp_path):
    """While the scheduler is stopped nothing is scheduled, so that nothing can be shown before it runs again."""
    ours, done = make()
    with ours.stopped("kube-scheduler"):
        with ours.running_with("kube-apiserver", {"v": "4"}):
            pass
        assert "usable" not in done
        assert not lent(tmp_path)
    assert done[-2:] == ["start kube-scheduler", "usable"]
    assert lent(tmp_path)
