"""What happened to a test's objects, in the order in which it was seen: evidence for when something fails."""

from __future__ import annotations

__all__ = ["Entry", "Timeline"]

import math
import threading
import time
from dataclasses import dataclass

from pvaffinity.api import TRANSPORT_ERRORS, Api, WatchStop
from pvaffinity.describing import describe
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj, Ref

_STREAM = 300
"""Seconds after which a stream is opened anew."""

_PAUSE = 0.2
"""Seconds before a failed list or watch is tried again."""


@dataclass(frozen=True)
class Entry:
    """One change, or one mark.

    Attributes:
        at: seconds on the monotonic clock when it was seen, not when it happened.
        wall: the same moment as seconds since the epoch.
        kind: of the object; ``mark`` for our own actions.
        name: of the object; for an event, of the object it is about.
        resource_version: of the object; revisions of one API server's store are in order across kinds.
        text: one line.
    """

    at: float
    wall: float
    kind: str
    name: str
    resource_version: str
    text: str


class Timeline:
    """Watches volumes by label and a namespace's claims, pods and events in the background. Thread-safe.

    Args:
        api: who watches.
        namespace: whose claims, pods and events; None: volumes only.
        labels: a label selector for the volumes.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`; neither waits for the server.
    """

    def __init__(self, api: Api, namespace: str | None, labels: str = "") -> None:
        self._api = api
        sources: list[tuple[str, str | None, str]] = [("PersistentVolume", None, labels)]
        if namespace is not None:
            sources += [(kind, namespace, "") for kind in ("PersistentVolumeClaim", "Pod", "Event")]
        self._sources = sources
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._objects: dict[tuple[str, str], Obj] = {}
        self._seen: dict[tuple[str, str], str] = {}
        self._listed: dict[str, float] = {}  # kind → when it was listed last; infinite while it cannot be watched
        self._stops: dict[str, WatchStop] = {}
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.begun = time.monotonic()

    def __enter__(self) -> Timeline:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> Timeline:
        """Begin to watch; what is there already is entered first."""
        self.begun = time.monotonic()
        for source in self._sources:
            thread = threading.Thread(target=self._follow, args=source, name=f"timeline-{source[0]}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self) -> None:
        """End all watches at once. Entries and objects stay readable."""
        self._ended.set()
        with self._lock:
            stops = list(self._stops.values())
        for stop in stops:
            stop.close()
        deadline = time.monotonic() + 0.5
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def mark(self, text: str) -> None:
        """Enter something of our own, such as ``PV patched (rv 812)``."""
        self._add("mark", "", "", text)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries so far, in the order in which they were seen."""
        with self._lock:
            return tuple(self._entries)

    def objects(self) -> list[Obj]:
        """Every object as it was last seen, deleted ones included; no events."""
        with self._lock:
            return [obj for (kind, _), obj in sorted(self._objects.items()) if kind != "Event"]

    def events(self) -> list[Obj]:
        """Every event as it was last seen."""
        with self._lock:
            return [obj for (kind, _), obj in sorted(self._objects.items()) if kind == "Event"]

    def last(self, ref: Ref) -> Obj | None:
        """One object as it was last seen, deleted or not; None where it never was."""
        with self._lock:
            return self._objects.get((ref.kind, ref.name))

    def interrupted(self, kind: str, since: float) -> bool:
        """Whether a kind's watch has had a gap after a moment, by the monotonic clock: changes may be missing."""
        return self._listed.get(kind, math.inf) > since

    def render(self, limit: int = 40) -> str:
        """The newest ``limit`` entries, one a line, in seconds since the start."""
        entries = self.entries
        lines = [f"({len(entries) - limit} earlier entries)"] if len(entries) > limit else []
        for entry in entries[-limit:]:
            what = f"{entry.kind} {entry.name}: {entry.text}" if entry.kind != "mark" else entry.text
            lines.append(f"+{entry.at - self.begun:.2f} s {what}")
        return "\n".join(lines) or "nothing seen"

    def _add(self, kind: str, name: str, version: str, text: str) -> None:
        with self._lock:
            self._entries.append(Entry(time.monotonic(), time.time(), kind, name, version, text))

    def _follow(self, kind: str, namespace: str | None, labels: str) -> None:
        version = ""
        while not self._ended.is_set():
            try:
                if not version:
                    found, version = self._api.snapshot(kind, namespace, labels=labels or None)
                    self._listed[kind] = time.monotonic()
                    self._relist(kind, found)
                stop = WatchStop()
                with self._lock:
                    self._stops[kind] = stop
                if self._ended.is_set():
                    return
                begun = time.monotonic()
                for action, obj in self._api.watch(
                    kind, namespace, resource_version=version, labels=labels or None, seconds=_STREAM, stop=stop
                ):
                    version = obj["metadata"]["resourceVersion"]
                    self._enter(kind, obj, gone=action == "DELETED")
                if time.monotonic() - begun < _PAUSE:
                    self._ended.wait(_PAUSE)
            except (ApiError, *TRANSPORT_ERRORS) as error:
                if self._ended.is_set():
                    return
                if getattr(error, "code", 0) != 410:
                    self._note(kind, str(error))
                version = ""
                self._listed[kind] = math.inf
                self._ended.wait(_PAUSE)

    def _relist(self, kind: str, found: list[Obj]) -> None:
        names = {obj["metadata"]["name"] for obj in found}
        with self._lock:
            lost = [o for (k, n), o in self._objects.items() if k == kind and n not in names and (k, n) in self._seen]
        for obj in lost if kind != "Event" else ():
            self._enter(kind, obj, gone=True)
        for obj in found:
            self._enter(kind, obj, gone=False)

    def _enter(self, kind: str, obj: Obj, *, gone: bool) -> None:
        metadata = obj["metadata"]
        key = (kind, metadata["name"])
        text = "deleted" if gone else describe(obj)
        about = metadata["name"] if kind != "Event" else obj["involvedObject"].get("name", "")
        with self._lock:
            self._objects[key] = obj
            same = self._seen.get(key) == text
            if gone:
                self._seen.pop(key, None)
            else:
                self._seen[key] = text
        if not same and not (gone and kind == "Event"):
            self._add(kind, about, metadata["resourceVersion"], text)

    def _note(self, kind: str, trouble: str) -> None:
        key = (kind, "")
        with self._lock:
            same = self._seen.get(key) == trouble
            self._seen[key] = trouble
        if not same:
            self._add(kind, "", "", f"cannot be watched: {trouble.splitlines()[0]}")
