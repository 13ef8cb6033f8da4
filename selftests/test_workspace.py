"""What a test makes is taken away again, all of it: a refusal for one object does not keep the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import workspace
from fixtures.workspace import Workspace
from pvaffinity.errors import ApiError
from pvaffinity.objects import Ref


class Server:
    """Deletes what it may, refuses what is named, and at times does not answer; knows what it was asked."""

    def __init__(self, refused: str = "", silent: bool = False) -> None:
        self.there: set[Ref] = set()
        self.refused, self.silent = refused, silent
        self.asked: list[str] = []

    def create(self, obj: Any) -> Any:
        self.there.add(Ref(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace")))
        return obj

    def delete(self, ref: Ref, **_: Any) -> bool:
        self.asked.append(ref.name)
        if self.silent:
            raise TimeoutError("timed out")
        if ref.name == self.refused:
            raise ApiError(403, "Forbidden", "not yours")
        self.there.discard(ref)
        return True

    def find(self, ref: Ref) -> Any:
        return {} if ref in self.there else None


def made(server: Server) -> Workspace:
    space = Workspace(SimpleNamespace(admin=server, ailing=lambda: ""), "ns")
    for kind, name in (("PersistentVolume", "a"), ("PersistentVolumeClaim", "b"), ("Pod", "c")):
        space.create({"kind": kind, "metadata": {"name": name, "namespace": "ns"}})
    return space


@pytest.mark.parametrize("refused", ["a", "b", "c"])
def test_a_refusal_does_not_keep_the_others(refused: str) -> None:
    """Everything else is deleted, and what was refused is told with the server's words."""
    server = Server(refused)
    (left,) = made(server).clear()
    assert "403 Forbidden: not yours" in left
    assert [ref.name for ref in server.there] == [refused]


def test_a_server_that_does_not_answer_is_asked_once() -> None:
    """With no server every object would wait for its time-out; all are told."""
    server = Server(silent=True)
    left = made(server).clear()
    assert len(left) == 3
    assert all("no answer: timed out" in each for each in left)
    assert server.asked == ["c"]


def test_what_does_not_go_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted and still there when the budget is over is named; all others are gone."""

    def until(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(workspace.waiting, "until", until)
    server = Server()
    space = made(server)
    monkeypatch.setattr(server, "find", lambda ref: {} if ref.name == "b" else None)
    assert len(space.clear()) == 1


def test_what_a_dead_component_keeps_is_waited_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks what is dead before what is deleted has had its usual time."""
    clearing = workspace._Clearing(lambda: "not running: kubelet-worker")
    assert clearing.obstacle(None) == ""
    monkeypatch.setattr(workspace, "_GOES", 0)
    assert clearing.obstacle(None) == "not running: kubelet-worker"


def test_nothing_is_left_where_all_goes() -> None:
    """The usual end: nothing is told, nothing is there."""
    server = Server()
    assert made(server).clear() == []
    assert not server.there
