"""A wait that runs out asks a control before it accuses anybody; an obstacle ends it at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import pytest

from pvaffinity.budgets import Budget
from pvaffinity.conditions import is_affected_since, is_running, is_running_on
from pvaffinity.controls import Controls
from pvaffinity.durations import note, table
from pvaffinity.judging import why_not_judged
from pvaffinity.objects import Obj, Ref
from pvaffinity.waiting import NeverUnknown, WaitTerminal, WaitTimeout, WaitUnknown, never
from selftests.watched import POD, Server, later, run, up, wait

pytestmark = pytest.mark.usefixtures("quick_waits")


class Says:
    """A control that says what it is told to."""

    def __init__(self, why: str = "", obstacle: str = "") -> None:
        self.why, self.standing, self.asked = why, obstacle, 0
        self.then: Callable[[bool], object] = bool

    def obstacle(self, last: Obj | None) -> str:
        """What stands in the way."""
        return self.standing

    def why_nothing(
        self, ref: Ref, budget: Budget, last: Obj | None, nodes: Collection[str] = (), *, volume: bool = False
    ) -> str:
        """Why nothing can be expected."""
        self.asked += 1
        self.then(volume)
        return self.why


def test_a_control_that_fails_too_makes_it_unknown() -> None:
    """Its reason stands in the error's first line, whatever line breaks it has."""
    server = Server()
    server.put(phase="Pending")
    with pytest.raises(WaitUnknown) as caught:
        wait(server, budget=0.1, control=Says("nor does a control\n get there"))
    assert why_not_judged(caught.value).endswith("given): nor does a control get there")


def test_a_control_that_succeeds_leaves_the_judgement() -> None:
    """On a cluster that does the same without the promise under test, a time-out is a judgement."""
    server = Server()
    server.put(phase="Pending")
    with pytest.raises(WaitTimeout):
        wait(server, budget=0.1, control=Says())


@pytest.mark.parametrize(("with_volume", "kind"), [(False, WaitUnknown), (True, WaitTimeout)])
def test_what_comes_as_late_as_a_control_is_not_judged(with_volume: bool, kind: type[Exception]) -> None:
    """Seen after the control without a volume; what comes only after one with a volume was woken by that."""
    server, says = Server(), Says()
    server.put(phase="Pending")
    says.then = lambda volume: run(server) if volume == with_volume else None
    with pytest.raises(kind, match="was not running within" if with_volume else "came late, .*as did a control") as got:
        wait(server, budget=0.1, control=says)
    assert bool(why_not_judged(got.value)) != with_volume
    assert says.asked == 1 + with_volume


def test_a_wait_that_is_met_asks_no_control() -> None:
    """Controls cost only those who wait in vain."""
    server, says = Server(), Says("never")
    run(server)
    wait(server, control=says)
    assert not says.asked


def test_an_obstacle_ends_a_wait_at_once() -> None:
    """A controller that was refused by a policy will not get there: the budget is not waited out."""
    server, says = Server(), Says()
    server.put(phase="Pending")
    later(lambda: setattr(says, "standing", "denied request: limits"))
    began = time.monotonic()
    with pytest.raises(WaitUnknown, match="cannot become running: denied request: limits"):
        wait(server, control=says)
    assert time.monotonic() - began < 10


def test_surroundings_make_a_terminal_state_unknown() -> None:
    """An evicted pod says nothing about its volume; one on the wrong node does, even if it was evicted there."""
    server = Server()
    server.put(phase="Failed", reason="Evicted", message="disk pressure", node="node-1")
    with pytest.raises(WaitUnknown, match="Evicted: disk pressure"):
        wait(server)
    with pytest.raises(WaitTerminal):
        wait(server, is_running_on(["node-2"], "elsewhere"))


def test_a_missing_image_makes_a_time_out_unknown() -> None:
    """A container whose image cannot be had accuses no one, and no control is needed to know it."""
    server, says = Server(), Says()
    waiting = [{"name": "c", "state": {"waiting": {"reason": "ErrImagePull", "message": "no route"}}}]
    server.put(phase="Pending", node="node-1", containerStatuses=waiting)
    with pytest.raises(WaitUnknown, match="ErrImagePull: no route"):
        wait(server, budget=0.1, control=says)
    assert not says.asked


def test_an_eviction_does_not_violate_never() -> None:
    """A pod that its node evicted is affected, but not by the update of its volume."""
    server = Server()
    run(server)
    assert server.now is not None
    unaffected = is_affected_since(server.now)
    server.put(phase="Failed", reason="Evicted", node="node-1", containerStatuses=up())
    with pytest.raises(NeverUnknown, match="Evicted"):
        never(server, POD, unaffected, 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "message", "obstacle"),
    [
        ("FailedCreate", "create Pod db-0 failed: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: x", 1),
        ("FailedCreate", 'create Pod db-0 in StatefulSet db failed error: pods "db-0" already exists', 0),
        ("FailedMount", 'admission webhook "w" denied the request: no', 0),
    ],
)
def test_a_controllers_refused_creation_is_an_obstacle(reason: str, message: str, obstacle: int) -> None:
    """Only FailedCreate counts, and only where admission refused: a controller tries everything else again."""
    events = [{"reason": "SuccessfulCreate", "message": "x"}, {"reason": reason, "message": message}]
    found = Controls(None, "ns", events=lambda: events).obstacle(None)  # type: ignore[arg-type]
    assert found == (message if obstacle else "")


def test_a_dead_component_needs_no_control() -> None:
    """Where the provider knows what is dead, that is the reason."""
    controls = Controls(None, "ns", lambda: "not running: kube-scheduler")  # type: ignore[arg-type]
    assert controls.why_nothing(POD, Budget("start", 1, "patience", "", ""), None) == "not running: kube-scheduler"


def test_the_dead_kubelet_of_an_awaited_pod_is_an_obstacle(monkeypatch) -> None:
    """Only that of the node the pod is on, and not asked for by waits that are as quick as usual."""
    asked = []

    def ailing(*of: str) -> str:
        asked.append(of)
        return "not running: kubelet-worker" if of == ("kubelet-worker",) else ""

    controls = Controls(None, "ns", ailing)  # type: ignore[arg-type]
    assert controls.obstacle({"spec": {"nodeName": "worker"}}) == ""
    monkeypatch.setattr("pvaffinity.controls._ASKS", 0)
    seen = [controls.obstacle(last) for last in (None, {"spec": {}}, {"spec": {"nodeName": "worker2"}})]
    assert (seen, asked) == (["", "", ""], [("kubelet-worker2",)])
    assert controls.obstacle({"spec": {"nodeName": "worker"}}) == "not running: kubelet-worker"


def test_usual_words_need_no_proof() -> None:
    """A condition met in its usual words, or without any, costs nothing more."""
    controls = Controls(None, "ns")  # type: ignore[arg-type]
    controls.prove(is_running, POD, {})


def test_durations_are_kept_where_they_are_wanted(tmp_path, monkeypatch) -> None:
    """With PVAFFINITY_WAITS each wait that was met is one line, from which p50 and p99 are told."""
    file = tmp_path / "waits"
    note(Budget("start", 1, "patience", "", ""), 3)
    monkeypatch.setenv("PVAFFINITY_WAITS", str(file))
    for seconds in range(200):
        note(Budget("start", 1, "patience", "", ""), seconds / 100)
    assert table(file.read_text())[1].split() == ["start", "200", "1.000", "1.980", "1.990"]
