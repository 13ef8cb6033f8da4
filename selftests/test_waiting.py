"""The waiting loop: when a wait ends, and with what."""

from __future__ import annotations

import time

import pytest

from pvaffinity import looking
from pvaffinity.conditions import has_event, is_gone, is_running, is_running_on, replacing
from pvaffinity.objects import Ref
from pvaffinity.waiting import WaitTerminal, WaitTimeout, until
from selftests.watched import Server, later, run, wait

pytestmark = pytest.mark.usefixtures("quick_waits")


def test_met_at_once() -> None:
    """A state that is there already needs one list and no watch."""
    server = Server()
    run(server)
    assert wait(server)["spec"]["nodeName"] == "node-1"
    assert (server.lists, server.watches) == (1, 0)
    assert server.asked == [("Pod", "ns", "metadata.name=reader")]


def test_met_later_by_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that comes while watching is seen at once, without another list."""
    monkeypatch.setattr(looking, "_SLICE", 30)
    server = Server()
    server.put(phase="Pending")
    later(lambda: run(server), after=0.1)
    wait(server, budget=30)
    assert (server.lists, server.watches) == (1, 1)


def test_object_that_is_made_later() -> None:
    """An object that does not exist yet may be waited for."""
    server = Server()
    later(lambda: server.put(phase="Pending"), lambda: run(server))
    wait(server)


def test_the_budget_is_kept() -> None:
    """A wait ends when its budget does, not when the server ends the stream."""
    server = Server()
    server.put(phase="Pending")
    begun = time.monotonic()
    with pytest.raises(WaitTimeout):
        wait(server, budget=0.15)
    assert 0.15 <= time.monotonic() - begun < 0.9


def test_terminal_state() -> None:
    """A pod on another node ends the wait long before its budget."""
    server = Server()
    server.put(phase="Pending")
    later(lambda: server.put(phase="Pending", node="node-2"))
    begun = time.monotonic()
    with pytest.raises(WaitTerminal, match="can no longer become running on a node in us-east1-c"):
        wait(server, is_running_on(["node-1"], "in us-east1-c"), budget=30)
    assert time.monotonic() - begun < 15


def test_object_deleted() -> None:
    """Deletion ends a wait for anything but deletion."""
    server = Server()
    server.put(phase="Pending")
    later(server.drop)
    with pytest.raises(WaitTerminal, match="deleted: UID u1 is gone"):
        wait(server)
    assert server.lists == 1  # seen by the watch, not by a later list


@pytest.mark.parametrize("fault", ["", "stall"])
def test_object_replaced(fault: str) -> None:
    """Another object of the same name is not the one waited for, even where the deletion itself was missed."""
    server = Server(fault)
    server.put(phase="Pending")

    def replace() -> None:
        server.drop()
        run(server, uid="u2")

    later(replace)
    with pytest.raises(WaitTerminal, match=r"deleted: UID u1 is gone|replaced: UID u2 instead of u1"):
        wait(server)


def test_replacement_awaited() -> None:
    """The next object of a name can be waited for; the old one does not count, however well it runs."""
    server = Server()
    run(server)
    later(lambda: run(server, leaving=True), server.drop, lambda: run(server, uid="u2", node="node-2"))
    assert wait(server, replacing("u1", is_running))["metadata"]["uid"] == "u2"


@pytest.mark.parametrize("again", [False, True])
def test_gone(again: bool) -> None:
    """Gone is met by deletion, and by replacement."""
    server = Server("stall" if again else "")
    server.put(phase="Pending")
    later(server.drop, *([lambda: server.put(uid="u2")] if again else []), after=0.02)
    assert wait(server, is_gone)["metadata"]["uid"] == ("u2" if again else "u1")


def test_gone_already() -> None:
    """What is not there is gone."""
    assert wait(Server(), is_gone) == {}


def test_event() -> None:
    """An event about the object is found by reason, text and UID, in the object's namespace."""
    server = Server("one")
    later(
        lambda: server.event("FailedMount", "other"),
        lambda: server.event("FailedMount", "no matching NodeSelectorTerms", uid="u0"),
        lambda: server.event("FailedMount", "no matching NodeSelectorTerms"),
    )
    event = wait(server, has_event("FailedMount", "no matching", uid="u1"))
    assert event["involvedObject"]["uid"] == "u1"
    assert server.asked[0] == ("Event", "ns", "involvedObject.kind=Pod,involvedObject.name=reader")


def test_events_of_cluster_objects() -> None:
    """Events about objects without namespace lie in the namespace default."""
    server = Server()
    server.event("Recycled", "x")
    until(server, Ref("PersistentVolume", "pv"), has_event("Recycled"), 1)  # type: ignore[arg-type]
    assert server.asked == [("Event", "default", "involvedObject.kind=PersistentVolume,involvedObject.name=pv")]
