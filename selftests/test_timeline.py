"""The timeline, over a stand-in for the API client with scripted streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pvaffinity import timeline as module
from pvaffinity.affinity import in_region, in_zone
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj, Ref
from pvaffinity.timeline import Timeline

Step = tuple[str, Obj] | Exception


class _Streams:
    """Answers lists and watches of each kind from a script; a watch whose script is empty stays open."""

    def __init__(self, **scripts: list[list[Step]]) -> None:
        self.scripts = scripts
        self.lists: dict[str, list[list[Obj]]] = {}
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.open = threading.Semaphore(0)

    def snapshot(self, kind: str, namespace: str | None, *, labels: str | None) -> tuple[list[Obj], str]:
        self.asked.append((kind, namespace, labels))
        waiting = self.lists.get(kind) or [[]]
        return (waiting.pop(0) if len(waiting) > 1 else waiting[0]), "1"

    def watch(self, kind: str, namespace: str | None, *, stop: Any, **_: Any) -> Iterator[tuple[str, Obj]]:
        script = self.scripts.get(kind) or []
        if script:
            for step in script.pop(0):
                if isinstance(step, Exception):
                    raise step
                yield step
        if not script:
            self.open.release()
            while not stop.closed:
                time.sleep(0.002)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.01)


def volume(version: int, affinity: Any, phase: str = "Bound") -> Obj:
    metadata = {"name": "pv-a", "resourceVersion": str(version)}
    spec = {"nodeAffinity": affinity.to_dict()}
    return {"kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def event(version: int, message: str) -> Obj:
    metadata = {"name": "e.1", "resourceVersion": str(version)}
    involved = {"kind": "Pod", "name": "reader"}
    return {
        "metadata": metadata,
        "type": "Warning",
        "reason": "FailedMount",
        "message": message,
        "involvedObject": involved,
    }


def record(streams: _Streams, namespace: str | None = "ns", meanwhile: Callable[[Timeline], Any] = str) -> Timeline:
    line = Timeline(streams, namespace, "run=1")  # type: ignore[arg-type]
    with line:
        for _ in range(4 if namespace else 1):
            assert streams.open.acquire(timeout=30)
        meanwhile(line)
    return line


def test_changes_are_entered_once_and_in_order() -> None:
    """A change is one line with its resourceVersion; a write that changes nothing visible is none."""
    streams = _Streams(
        PersistentVolume=[
            [
                ("MODIFIED", volume(11, in_zone("a"))),
                ("MODIFIED", volume(12, in_region("r"))),
                ("DELETED", volume(13, in_region("r"))),
            ]
        ]
    )
    streams.lists["PersistentVolume"] = [[volume(10, in_zone("a"))]]
    line = record(streams, meanwhile=lambda t: t.mark("done"))
    assert [(e.kind, e.name, e.resource_version, e.text) for e in line.entries] == [
        ("PersistentVolume", "pv-a", "10", "Bound, nodeAffinity topology.kubernetes.io/zone In [a]"),
        ("PersistentVolume", "pv-a", "12", "Bound, nodeAffinity topology.kubernetes.io/region In [r]"),
        ("PersistentVolume", "pv-a", "13", "deleted"),
        ("mark", "", "", "done"),
    ]
    assert [e.at for e in line.entries] == sorted(e.at for e in line.entries)
    assert [o["metadata"]["resourceVersion"] for o in line.objects()] == ["13"]


def test_what_is_watched() -> None:
    """Volumes are picked by label, the rest by namespace; without a namespace only volumes are watched."""
    streams = _Streams()
    record(streams)
    assert set(streams.asked) == {
        ("PersistentVolume", None, "run=1"),
        ("PersistentVolumeClaim", "ns", None),
        ("Pod", "ns", None),
        ("Event", "ns", None),
    }
    streams = _Streams()
    record(streams, None)
    assert streams.asked == [("PersistentVolume", None, "run=1")]


def test_events_are_named_after_what_they_are_about() -> None:
    """An event's line names its object; a repetition of the same words is left out."""
    steps: list[Step] = [
        ("ADDED", event(5, "no matching")),
        ("MODIFIED", event(6, "no matching")),
        ("DELETED", event(7, "")),
    ]
    line = record(_Streams(Event=[steps]))
    assert [(e.kind, e.name, e.text) for e in line.entries] == [("Event", "reader", "Warning FailedMount: no matching")]
    assert len(line.events()) == 1
    assert line.objects() == []


def test_expired_history_and_missed_deletion() -> None:
    """After 410 the kind is listed again, without a word; what is missing then was deleted."""
    streams = _Streams(PersistentVolume=[[ApiError(410, "Expired", "too old")], []])
    streams.lists["PersistentVolume"] = [[volume(10, in_zone("a"))], []]
    line = record(streams)
    assert [e.text for e in line.entries] == ["Bound, nodeAffinity topology.kubernetes.io/zone In [a]", "deleted"]


def test_a_gap_is_known_of() -> None:
    """A kind that was listed anew may have changed unseen before that, and no longer after it; others have not."""
    moments: list[float] = []
    streams = _Streams(PersistentVolume=[[ApiError(410, "Expired", "too old")], []])
    streams.lists["PersistentVolume"] = [[volume(10, in_zone("a"))]]
    line = record(streams, meanwhile=lambda _: moments.append(time.monotonic()))
    assert line.interrupted("PersistentVolume", line.entries[0].at)
    assert not line.interrupted("PersistentVolume", moments[0])
    assert not line.interrupted("Pod", moments[0])
    assert Timeline(_Streams(), "ns").interrupted("Pod", 0)  # type: ignore[arg-type]
    assert line.last(Ref("PersistentVolume", "pv-a")) == volume(10, in_zone("a"))


def test_trouble_is_entered_once() -> None:
    """A kind that cannot be watched says so once and is tried again."""
    down = ApiError(503, "ServiceUnavailable", "later")
    line = record(_Streams(Pod=[[down], [down], []]))
    assert [e.text for e in line.entries] == ["cannot be watched: 503 ServiceUnavailable: later"]


def test_start_and_stop_are_quick() -> None:
    """Neither starting nor stopping waits for the server."""
    streams = _Streams()
    line = Timeline(streams, "ns")  # type: ignore[arg-type]
    begun = time.monotonic()
    line.start()
    started = time.monotonic()
    for _ in range(4):
        streams.open.acquire(timeout=30)
    ending = time.monotonic()
    line.stop()
    assert max(started - begun, time.monotonic() - ending) < 5  # the server never ends a watch by itself
    assert not [t for t in threading.enumerate() if t.name.startswith("timeline-")]


def test_marks_from_many_threads() -> None:
    """Marks may come from any thread."""
    line = Timeline(_Streams(), None)  # type: ignore[arg-type]
    threads = [threading.Thread(target=line.mark, args=(str(i),)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {e.text for e in line.entries} == {str(i) for i in range(40)}


def test_render() -> None:
    """The newest entries are shown, with how many were left out."""
    line = Timeline(_Streams(), None)  # type: ignore[arg-type]
    assert line.render() == "nothing seen"
    for text in ("one", "two", "three"):
        line.mark(text)
    assert line.render(2).splitlines() == ["(1 earlier entries)", "+0.00 s two", "+0.00 s three"]
