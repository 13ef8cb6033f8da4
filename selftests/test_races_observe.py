"""What an observer makes of a watch, and how long it waits for what it is to see."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pvaffinity.errors import ApiError
from pvaffinity.races import SweepError, observe
from pvaffinity.races.observe import Observer, Sighting, TooSlowError, await_all, fate_of
from pvaffinity.verdicts import Binding, Warned
from selftests.scripted import Server, pod


def test_binding_version_is_that_of_the_first_bound_version_seen():
    """The event that first shows a node gives the binding's version; later ones do not move it."""
    events = [("ADDED", pod(5)), ("MODIFIED", pod(7, "n")), ("MODIFIED", pod(9, "n", phase="Running"))]
    with Observer(Server([[]], [events]), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(["p"], lambda seen: seen.fate.phase == "Running", 30)
        assert observer.take("p").binding == Binding("n", 7)


def test_a_resumed_watch_loses_nothing():
    """A stream that merely ends is resumed where it was, so the binding's version is still exact."""
    streams = [[("ADDED", pod(5))], [("MODIFIED", pod(7, "n"))]]
    with Observer(Server([[]], streams), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(["p"], lambda seen: seen.binding is not None, 30)
        assert observer.take("p").binding == Binding("n", 7)


def test_after_410_the_binding_version_is_unknown():
    """A binding found in a new list after an expired watch has a node but no version."""
    streams = [[("ADDED", pod(5)), ApiError(410, "Expired", "too old")], []]
    with Observer(Server([[], [pod(9, "n")]], streams), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(["p"], lambda seen: seen.binding is not None, 30)
        assert observer.take("p").binding == Binding("n", None)


@pytest.mark.parametrize(
    "trouble", [ApiError(429, "TooManyRequests", "later"), ConnectionResetError("reset")], ids=repr
)
def test_a_server_that_cannot_answer_for_a_while_is_asked_again(monkeypatch, trouble):
    """A list or a watch that fails for a moment ends no sweep, and the watch is resumed where it was."""

    class Busy(Server):
        lists_failed = 0

        def snapshot(self, kind: str, *more: Any, **options: Any) -> tuple[list[dict[str, Any]], str]:
            """The first two fail."""
            if self.lists_failed < 2:
                self.lists_failed += 1
                raise trouble
            return super().snapshot(kind, *more, **options)

    monkeypatch.setattr(observe, "_PAUSE", 0.01)
    streams = [[("ADDED", pod(5)), trouble], [trouble], [("MODIFIED", pod(7, "n"))]]
    with Observer(Busy([[]], streams), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(["p"], lambda seen: seen.binding is not None, 30)
        assert observer.take("p").binding == Binding("n", 7)


def test_a_failing_watch_ends_the_sweep():
    """An error of the watch reaches whoever waits, instead of letting the wait run out."""
    server = Server([[]], [[("ADDED", pod(5)), ApiError(403, "Forbidden", "no")]])
    with pytest.raises(SweepError, match="a watch failed: 403"):
        with Observer(server, "ns", "a=b") as observer:  # type: ignore[arg-type]
            observer.wait(["p"], lambda seen: False, 30)


def test_waiting_for_objects_names_the_missing():
    """What is not met in time is counted and named."""
    with pytest.raises(TooSlowError, match=r"1 of 2 Pods were not Bound, none for 0\.1 s: q"):
        await_all(
            Server([[pod(3)]], []),  # type: ignore[arg-type]
            "Pod",
            "ns",
            ["p", "q"],
            lambda obj: True,
            labels="a=b",
            seconds=0.1,
            what="Bound",
        )


def test_patience_begins_anew_with_every_pod_that_gets_there():
    """A slow cluster is waited for as long as pods keep coming; it is given up when none comes any more."""

    class Slow(Server):
        def watch(self, kind: str, *_: Any, stop: Any, **__: Any) -> Iterator[tuple[str, dict[str, Any]]]:
            """A pod every 0.2 s, four of them; then nothing more."""
            for number in range(4 if kind == "Pod" else 0):
                threading.Event().wait(0.2)
                obj = pod(5 + number)
                obj["metadata"]["name"] = f"p{number}"
                yield "DELETED", obj
            while not stop.closed:
                threading.Event().wait(0.01)

    names = [f"p{number}" for number in range(4)]
    with Observer(Slow([[]], []), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(names, lambda seen: seen.gone, 30)
        assert not observer.wait([*names, "p4"], lambda seen: seen.gone, 0.1)
    await_all(Slow([[]], []), "Pod", "ns", names, lambda obj: True, labels="a=b", seconds=30, what="there")  # type: ignore[arg-type]


def test_patience_ends_one_budget_after_the_sweeps_time():
    """However many pods still come one by one, a wait goes on for no longer than its budget after the sweep's end."""

    class Endless(Server):
        def watch(self, kind: str, *_: Any, stop: Any, **__: Any) -> Iterator[tuple[str, dict[str, Any]]]:
            """A pod every 0.1 s."""
            for number in itertools.count():
                if stop.closed:
                    return
                threading.Event().wait(0.1)
                obj = pod(5 + number)
                obj["metadata"]["name"] = f"p{number}"
                if kind == "Pod":
                    yield "DELETED", obj

    names = [f"p{number}" for number in range(300)]
    with Observer(Endless([[]], []), "ns", "a=b") as observer:  # type: ignore[arg-type]
        begun = time.monotonic()
        assert not observer.wait(names, lambda seen: seen.gone, 2, begun + 0.2)
        assert time.monotonic() - begun < 20
    begun = time.monotonic()
    with pytest.raises(TooSlowError, match="the sweep's time was over"):
        await_all(
            Endless([[]], []),  # type: ignore[arg-type]
            "Pod",
            "ns",
            names,
            lambda obj: True,
            labels="a=b",
            seconds=2,
            what="there",
            end=begun + 0.2,
        )
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("status", "ran"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, False),
        ({"containerStatuses": [{"ready": True, "state": {"waiting": {}}}]}, False),
        ({"containerStatuses": [{"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}, True),
        ({"containerStatuses": [{"state": {"terminated": {"startedAt": "2026-01-01T00:00:00Z"}}}]}, True),
        ({"containerStatuses": [{"state": {"terminated": {"startedAt": None}}}]}, False),
        ({"containerStatuses": [{"state": {"waiting": {}}, "lastState": {"terminated": {"startedAt": "x"}}}]}, True),
        ({}, False),
    ],
)
def test_a_pod_ran_if_a_container_started(status, ran):
    """Only a started container counts, not readiness, and a start is never forgotten."""
    assert fate_of(pod(1, "n", **status)).ran is ran
    assert fate_of(pod(1, "n", **status), ran_before=True).ran


def test_a_mount_that_failed_for_another_reason_is_not_the_end():
    """A kubelet that may not read the claim yet says FailedMount and tries again: the pod's fate is still open."""
    early = Warned("FailedMount", "failed to fetch PVC: forbidden: no relationship found between node and this object")
    late = Warned("FailedMount", 'MountVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms')
    seen = Sighting(binding=Binding("worker", 7), events=[early])
    assert not seen.settled
    seen.events.append(late)
    assert seen.settled
