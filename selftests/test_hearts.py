"""The end of heartbeats: every writer is stopped and every node's directory removed, whichever of them fails."""

from __future__ import annotations

import types
from typing import Any

import pytest

from fixtures.heartbeat import hearts
from pvaffinity.affinity import HOSTNAME
from pvaffinity.kubectl import Completed
from pvaffinity.objects import Ref
from pvaffinity.topology import Node
from pvaffinity.waiting import WaitTimeout


class Stage:
    """Pods with the phase they are said to have; what is done to them, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.phases: dict[str, str | None] = {}
        self.stuck: set[str] = set()
        self.nodes = [Node(name, {HOSTNAME: name}, True) for name in ("one", "two")]
        self.cluster: Any = types.SimpleNamespace(
            topology=types.SimpleNamespace(matching=lambda node: [self.nodes[node]]),
            admin=types.SimpleNamespace(delete=lambda ref: self.done.append(f"stop {ref.name}")),
            kubectl=types.SimpleNamespace(run=self.run),
        )

    def run(self, _: str, namespace: str, name: str, *command: str, timeout: float) -> Completed:
        """End a control."""
        self.done.append(f"end {name}")
        return Completed(command, 0, "", "")

    def find(self, ref: Ref) -> dict[str, Any] | None:
        """A pod as it is; None where it is gone."""
        phase = self.phases.get(ref.name, "Running")
        return {"status": {"phase": phase}} if phase else None

    def pod(self, *volumes: Any, containers: list[dict[str, Any]], labels: dict[str, str], **_: Any) -> Any:
        """Make a pod, named after its container and node; the second of a name is its substitute."""
        name = f"{containers[0]['name']}-{labels[HOSTNAME]}"
        name += "-again" if f"made {name}" in self.done else ""
        self.done.append(f"made {name}")
        return types.SimpleNamespace(api=self, ref=Ref("Pod", name, "ns"))

    def until(self, handle: Any, condition: Any, budget: str | None = None) -> Any:
        """Wait; those that are stuck are not gone, and do not end or start."""
        if f"{handle.ref.name} {condition.name}" in self.stuck:
            raise WaitTimeout(f"{handle.ref.name} was not {condition.name}")

    def volume(self, *_: Any, **__: Any) -> Any:
        """Make a volume."""
        return types.SimpleNamespace(claim=types.SimpleNamespace(ref=Ref("PersistentVolumeClaim", "vol", "ns")))

    def hearts(self) -> Any:
        """What is tested."""
        return hearts(self.cluster, "pv-1", self.volume, self.pod, self.until, None)  # type: ignore[arg-type]


@pytest.fixture
def stage():
    return Stage()


def beat_on_both(stage):
    with stage.hearts() as make:
        make(0)
        make(1)
        stage.done.clear()


def test_all_writers_stop_before_any_control_removes_its_directory(stage):
    """No directory is removed while anybody may still write to it."""
    beat_on_both(stage)
    assert stage.done == ["stop writer-two", "stop writer-one", "end control-two", "end control-one"]


def test_one_failure_at_the_end_keeps_nothing_else_from_being_tried(stage):
    """A writer that does not stop is an error, and all the others are stopped and every directory is removed."""
    stage.stuck = {"writer-two gone", "control-two Succeeded"}
    with pytest.raises(AssertionError, match="may be left on node two") as caught:
        beat_on_both(stage)
    assert stage.done == ["stop writer-two", "stop writer-one", "end control-two", "end control-one"]
    assert "writer-two was not gone" in repr(_chain(caught.value))


@pytest.mark.parametrize("phase", ["Failed", None])
def test_a_control_that_died_is_replaced_to_remove_its_directory(stage, phase):
    """A dead or deleted control leaves no directory: another one on its node removes it."""
    stage.phases["control-one"] = phase
    with stage.hearts() as make:
        make(0)
    assert stage.done[-3:] == ["stop writer-one", "made control-one-again", "end control-one-again"]


def test_a_directory_that_stays_is_an_error_that_names_it(stage):
    """Where the substitute does not start either, the test says what is left, and where."""
    stage.phases["control-one"] = "Failed"
    stage.stuck = {"control-one-again running"}
    with pytest.raises(AssertionError, match=r"/var/tmp/pv-1 may be left on node one"), stage.hearts() as make:
        make(0)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded"])
def test_a_control_without_a_directory_has_nothing_to_remove(stage, phase):
    """One that never began, or has removed it already, is left alone."""
    stage.phases["control-one"] = phase
    with stage.hearts() as make:
        make(0)
    assert stage.done[-1] == "stop writer-one"


def _chain(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
