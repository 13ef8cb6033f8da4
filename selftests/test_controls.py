"""What a control is made of, where it goes, and that one that fails accuses nobody; on an API server of our own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pvaffinity.budgets import BUDGETS, Budget
from pvaffinity.conditions import is_running_on, is_scheduled_for, is_unschedulable, replacing
from pvaffinity.controls import Controls
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj
from pvaffinity.waiting import WaitUnknown
from selftests.watched import POD, up

STATE = {"phase": "Running", "containerStatuses": up()}
START = Budget("start", 1, "patience", "", "")


class Server:
    """Whatever is made here is at once as it should be, but for the kinds that are ``stuck``."""

    def __init__(self, *stuck: str) -> None:
        self.stuck, self.made, self.objects = stuck, list[Obj](), dict[str, Obj]()

    def create(self, obj: Obj) -> Obj:
        """Make it; a kind beside those known here is refused."""
        if f"no {obj['kind']}" in self.stuck:
            raise ApiError(409, "Conflict", "no more of them")
        spec, status = dict(obj["spec"]), dict[str, Any]()
        if obj["kind"] not in self.stuck:
            status = dict(STATE) if obj["kind"] == "Pod" else {"phase": "Bound"}
            spec |= {"nodeName": "node-1"} if obj["kind"] == "Pod" else {}
        metadata = {**obj["metadata"], "uid": obj["metadata"]["name"], "resourceVersion": str(len(self.made) + 1)}
        made = {**obj, "metadata": metadata, "spec": spec, "status": status}
        self.made.append(made)
        self.objects[f"{obj['kind']} {metadata['name']}"] = made
        return made

    def delete(self, ref: Any, **_: Any) -> bool:
        """Remove it."""
        return self.objects.pop(f"{ref.kind} {ref.name}", None) is not None

    def snapshot(self, kind: str, _: Any, *, fields: str, timeout: float) -> tuple[list[Obj], str]:
        """The one object asked for."""
        assert timeout > 0
        found = self.objects.get(f"{kind} {fields.removeprefix('metadata.name=')}")
        return ([found] if found else []), "1"

    def watch(self, *_: Any, stop: Any, **__: Any) -> Iterator[tuple[str, Obj]]:
        """Nothing ever changes."""
        while not stop.closed:
            time.sleep(0.005)
        yield from ()

    @property
    def pods(self) -> list[Obj]:
        """The specs of all pods made so far."""
        return [obj["spec"] for obj in self.made if obj["kind"] == "Pod"]


@pytest.fixture(autouse=True)
def _soon(quick_waits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "control", Budget("control", 0.1, "patience", "", ""))  # type: ignore[arg-type]


def controls(server: Server) -> Controls:
    return Controls(server, "ns")  # type: ignore[arg-type]


def awaited(**spec: Any) -> Obj:
    volumes = [{"persistentVolumeClaim": {"claimName": "c"}}]
    return {"kind": "Pod", "metadata": {"name": "reader", "namespace": "ns"}, "spec": {"volumes": volumes, **spec}}


def names(spec: Obj) -> list[str]:
    """The nodes that a pod may go to, by its affinity."""
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [value for term in terms for field in term["matchFields"] for value in field["values"]]


def test_a_control_goes_where_the_pod_was_awaited() -> None:
    """An unbound pod's goes to one of the condition's nodes, whatever its volume allows; a bound one's to its node."""
    server, there = Server(), is_running_on(["node-2", "node-1"], "in c")
    for condition in (there, is_scheduled_for(there), replacing("u", there)):
        last = awaited(nodeSelector={"a": "b"})
        assert controls(server).why_nothing(POD, START, last, condition.nodes) == ""
        assert names(server.pods[-1]) == ["node-1", "node-2"]
        assert server.pods[-1]["nodeSelector"] == {"a": "b"}
    assert controls(server).why_nothing(POD, START, awaited(nodeName="node-3"), there.nodes) == ""
    assert names(server.pods[-1]) == ["node-3"]
    assert not server.objects


def test_the_first_control_has_no_volume_and_the_second_has() -> None:
    """A new volume wakes every waiting pod, so it comes last, and only for a pod that has one."""
    server = Server()
    assert controls(server).why_nothing(POD, START, awaited()) == ""
    assert [obj["kind"] for obj in server.made] == ["Pod"]
    assert controls(server).why_nothing(POD, START, awaited(volumes=[]), volume=True) == ""
    assert len(server.made) == 1
    assert controls(server).why_nothing(POD, START, awaited(), volume=True) == ""
    assert [obj["kind"] for obj in server.made[1:]] == ["PersistentVolume", "PersistentVolumeClaim", "Pod"]


@pytest.mark.parametrize("stuck", ["PersistentVolumeClaim", "Pod", "no PersistentVolumeClaim", "no Pod"])
def test_a_proof_whose_control_fails_is_unknown(stuck: str) -> None:
    """A binder that is slow, or a refusal of what the control needs, does not accuse the cluster."""
    other_words = replace(is_unschedulable, words="other words")
    with pytest.raises(WaitUnknown, match="the control of Pod ns/reader did not get there"):
        controls(Server(stuck)).prove(other_words, POD, awaited())
