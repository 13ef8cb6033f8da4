"""Watching the pods of a race: who was bound where at which version, who ran, who was refused.

A binding's resourceVersion is that of the first version of the pod that has ``spec.nodeName``. A watch shows it:
events are not coalesced. etcd delivers every revision of a key in order (etcd.io/docs/latest/learning/api_guarantees,
"Reliable: a sequence of events will never drop any subsequence of events"), and the API server closes a watcher that
cannot keep up instead of skipping events (k8s.io/apiserver pkg/storage/cacher/cache_watcher.go,
``cacheWatcher.add``). A stream that ends is resumed at the last version seen; only after 410 Expired, and a new list,
may a version have been missed; then the binding's version is left unknown.
"""

from __future__ import annotations

__all__ = ["Observer", "Sighting", "SweepError", "TooSlowError", "await_all", "follow", "latest"]

import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field

from pvaffinity.api import TRANSPORT_ERRORS, Api, WatchStop
from pvaffinity.budgets import BUDGETS
from pvaffinity.errors import ApiError
from pvaffinity.judging import NotJudgedError
from pvaffinity.objects import Obj
from pvaffinity.verdicts import Binding, Fate, Warned
from pvaffinity.wire import tells_nothing

_PAUSE = 0.2
"""Seconds before a list or a watch that failed is tried again."""

LISTED = "LISTED"
"""The type :func:`follow` gives to what it found in a list."""


class SweepError(Exception):
    """A sweep could not be carried out, so that there is nothing to judge."""


class TooSlowError(SweepError, NotJudgedError):
    """The cluster did not keep up: no finding, and no more rounds to be had."""


def follow(
    api: Api,
    kind: str,
    namespace: str | None,
    *,
    labels: str | None = None,
    fields: str | None = None,
    stop: WatchStop,
    listed: Callable[[], None] = lambda: None,
) -> Generator[tuple[str, Obj], None, None]:
    """Yield what is there (``LISTED``) and then every change, without a gap, until ``stop`` is closed.

    ``listed`` is called after each list; a second list means that changes in between may have been missed. A server
    that cannot answer for a while is asked again, without an end: whoever follows has a budget.
    """
    version = ""
    while not stop.closed:
        try:
            if not version:
                items, version = api.snapshot(kind, namespace, labels=labels, fields=fields)
                for item in items:
                    yield LISTED, item
                listed()
            for event, obj in api.watch(
                kind, namespace, resource_version=version, labels=labels, fields=fields, seconds=120, stop=stop
            ):
                version = obj["metadata"]["resourceVersion"]
                yield event, obj
        except (ApiError, *TRANSPORT_ERRORS) as error:
            if isinstance(error, ApiError) and error.code == 410:
                version = ""
            elif tells_nothing(error):
                time.sleep(_PAUSE)
            else:
                raise


def latest(seconds: float, end: float) -> float:
    """When a wait of a sweep ends at the latest, whatever still comes: ``seconds`` after the sweep's own ``end``."""
    return max(time.monotonic(), end) + seconds


def await_all(
    api: Api,
    kind: str,
    namespace: str | None,
    names: Collection[str],
    met: Callable[[Obj], bool],
    *,
    labels: str,
    seconds: float,
    what: str,
    end: float = math.inf,
) -> None:
    """Watch until every named object meets a condition; one watch for all of them.

    Raises:
        TooSlowError: some did not, and for ``seconds`` no other one did, or it was :func:`latest`.
    """
    missing, stop, deadline, last = set(names), WatchStop(), time.monotonic() + seconds, latest(seconds, end)
    timer: threading.Timer

    def look() -> None:
        nonlocal timer
        left = deadline - time.monotonic()
        if left <= 0:
            stop.close()
            return
        timer = threading.Timer(left, look)
        timer.daemon = True
        timer.start()

    look()
    try:
        with contextlib.closing(follow(api, kind, namespace, labels=labels, stop=stop)) as changes:
            while missing:
                try:
                    _, obj = next(changes)
                except StopIteration:
                    some = ", ".join(sorted(missing)[:3])
                    why = "the sweep's time was over" if time.monotonic() >= last else f"none for {seconds:g} s"
                    raise TooSlowError(
                        f"{len(missing)} of {len(names)} {kind}s were not {what}, {why}: {some}"
                    ) from None
                if obj["metadata"]["name"] in missing and met(obj):
                    missing.discard(obj["metadata"]["name"])
                    deadline = min(time.monotonic() + seconds, last)
    finally:
        timer.cancel()


@dataclass
class Sighting:
    """What has been seen of one pod so far."""

    binding: Binding | None = None
    fate: Fate = field(default_factory=Fate)
    events: list[Warned] = field(default_factory=list)
    gone: bool = False

    @property
    def settled(self) -> bool:
        """Whether it ran, was refused by its kubelet, or is gone: nothing that would change a verdict is to come."""
        refused = any(event.refuses_affinity for event in self.events)
        return self.fate.ran or self.gone or self.fate.phase == "Failed" or (self.binding is not None and refused)


class Observer:
    """Two watches, of pods with a label and of Warning events in their namespace, in the background.

    Use as a context manager; inside, both watches are established.
    """

    def __init__(self, api: Api, namespace: str, labels: str) -> None:
        self._api, self._namespace, self._labels = api, namespace, labels
        self._sightings: dict[str, Sighting] = {}
        self._changed = threading.Condition()
        self._stops = (WatchStop(), WatchStop())
        self._listed = (threading.Event(), threading.Event())
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(watch,), name=f"race-{watch.__name__}", daemon=True)
            for watch in (self._pods, self._events)
        ]

    def __enter__(self) -> Observer:
        for thread in self._threads:
            thread.start()
        for listed in self._listed:
            if not listed.wait(seconds := BUDGETS["race-bind"].seconds):
                self.__exit__()
                raise TooSlowError(f"the race's pods could not be watched: the server gave no list for {seconds:g} s")
        self._check()
        return self

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop.close()
        for thread in self._threads:
            thread.join(5)

    def wait(
        self, names: Collection[str], met: Callable[[Sighting], bool], seconds: float, end: float = math.inf
    ) -> bool:
        """Wait until every named pod meets a condition.

        False when for ``seconds`` no other one of them did, or when it is :func:`latest`.
        """
        missing, deadline, last = set(names), time.monotonic() + seconds, latest(seconds, end)
        with self._changed:
            while True:
                self._check()
                if done := {name for name in missing if met(self._of(name))}:
                    missing -= done
                    deadline = min(time.monotonic() + seconds, last)
                left = deadline - time.monotonic()
                if not missing or left <= 0:
                    return not missing
                self._changed.wait(left)

    def take(self, name: str) -> Sighting:
        """What was seen of a pod, as it is now."""
        with self._changed:
            seen = self._of(name)
            return Sighting(seen.binding, seen.fate, list(seen.events), seen.gone)

    def _check(self) -> None:
        if self._error is not None:
            raise SweepError(f"a watch failed: {self._error}") from self._error

    def _of(self, name: str) -> Sighting:
        return self._sightings.setdefault(name, Sighting())

    def _run(self, watch: Callable[[], None]) -> None:
        try:
            watch()
        except Exception as error:  # noqa: BLE001  a thread's error is told to whoever waits
            with self._changed:
                self._error = error
                self._changed.notify_all()
            for listed in self._listed:
                listed.set()

    def _pods(self) -> None:
        changes = follow(
            self._api,
            "Pod",
            self._namespace,
            labels=self._labels,
            stop=self._stops[0],
            listed=self._listed[0].set,
        )
        for event, pod in changes:
            with self._changed:
                seen = self._of(pod["metadata"]["name"])
                node = pod["spec"].get("nodeName")
                if node and seen.binding is None:
                    exact = event != LISTED
                    seen.binding = Binding(node, int(pod["metadata"]["resourceVersion"]) if exact else None)
                seen.gone = event == "DELETED"
                seen.fate = fate_of(pod, ran_before=seen.fate.ran, gone=seen.gone)
                self._changed.notify_all()

    def _events(self) -> None:
        changes = follow(
            self._api,
            "Event",
            self._namespace,
            fields="type=Warning,involvedObject.kind=Pod",
            stop=self._stops[1],
            listed=self._listed[1].set,
        )
        for event, obj in changes:
            if event == "DELETED":
                continue
            warned = Warned(obj.get("reason") or "", obj.get("message") or "")
            with self._changed:
                seen = self._of(obj["involvedObject"]["name"])
                if warned not in seen.events:
                    seen.events.append(warned)
                self._changed.notify_all()


def fate_of(pod: Obj, *, ran_before: bool = False, gone: bool = False) -> Fate:
    """Read a pod's status. A container that ever started counts, whatever became of it."""
    status = pod.get("status") or {}
    states = [
        state
        for container in status.get("containerStatuses") or ()
        for state in ((container.get("state") or {}), (container.get("lastState") or {}))
    ]
    ran = any("running" in s or (s.get("terminated") or {}).get("startedAt") for s in states)
    conditions = status.get("conditions") or ()
    unschedulable = any(
        c["type"] == "PodScheduled" and c["status"] == "False" and c.get("reason") == "Unschedulable"
        for c in conditions
    )
    return Fate(
        phase=status.get("phase") or "",
        ran=ran_before or ran,
        reason=status.get("reason") or "",
        unschedulable=unschedulable,
        deleted=gone or "deletionTimestamp" in pod["metadata"],
    )
