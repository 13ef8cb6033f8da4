"""What a wait sees: every state of an object, judged, until a deadline; and what its error says when it ends badly.

A wait lists, watches from the list's resourceVersion, lists again whenever a stream ends (in silence, stalled, or with
410 Expired), and looks a last time when its budget is spent.
"""

from __future__ import annotations

__all__ = [
    "Looking",
    "NeverUnknown",
    "NeverViolated",
    "Renders",
    "WaitError",
    "WaitTerminal",
    "WaitTimeout",
    "WaitUnknown",
    "is_expired",
]

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from pvaffinity.api import TRANSPORT_ERRORS, Api, WatchStop
from pvaffinity.budgets import Budget
from pvaffinity.conditions import Condition, Look
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj, Ref
from pvaffinity.surroundings import surroundings

_SLICE = 5.0
"""Seconds after which a stream is ended and the object looked at anew: the most that a stalled stream can cost."""

_PAUSE = 0.1
"""Seconds between two tries where a stream or a list failed at once."""

_LAST = 30.0
"""Seconds that the last look may take, when the wait is over: of a server that stands still then, nothing is known."""


class Renders(Protocol):
    """What a message needs of a timeline."""

    def render(self, limit: int = ...) -> str:
        """The newest entries as text."""


class WaitError(AssertionError):
    """A wait that did not end as it should; the message has four parts: what, last seen, timeline, evidence.

    Attributes:
        last: the object as last seen.
    """

    last: Obj | None = None


class WaitTimeout(WaitError):  # noqa: N818 - the name is the message
    """The state was not reached within the budget."""


class WaitUnknown(WaitError):  # noqa: N818 - the name is the message
    """The state was not seen, and that judges nobody: nothing was seen in the end, or something else is to blame."""


class WaitTerminal(WaitError):  # noqa: N818 - the name is the message
    """The state cannot be reached any more."""


class NeverViolated(WaitError):  # noqa: N818 - the name is the message
    """The state that must never be was seen."""


class NeverUnknown(WaitError):  # noqa: N818 - the name is the message
    """Part of the object's history was not seen, so nobody can say whether the state was never there."""


class Looking:
    """One wait's view of one object; see :func:`pvaffinity.waiting.until` for its arguments."""

    def __init__(
        self,
        api: Api,
        ref: Ref,
        condition: Condition,
        budget: Budget,
        timeline: Renders | None,
        evidence: str | Callable[[], str] | None,
    ) -> None:
        self.api, self.ref, self.condition, self.budget = api, ref, condition, budget
        self.timeline, self.evidence = timeline, evidence
        self.started = time.monotonic()
        self.deadline = self.started + budget.seconds
        self.count = 0
        self.newest = self.started
        self.last: Obj | None = None
        self.lost = ""
        self.trouble = ""
        self.ended = ""
        self.history: list[tuple[float, str]] = []
        self.slice = _SLICE
        self._uid = ""

    def looks(self, *, strict: bool) -> Iterator[tuple[Obj | None, Look]]:
        """Every state of the object until the deadline, judged."""
        for obj in self._states(strict=strict):
            look = self._judge(obj)
            self.count += 1
            self.newest = time.monotonic()
            if obj is not None:
                self.last = obj
            if not self.history or self.history[-1][1] != look.seen:
                self.history.append((self.newest - self.started, look.seen))
            yield obj, look

    def _judge(self, obj: Obj | None) -> Look:
        if self.condition.events or self.condition.follows:
            return self.condition(obj)
        uid = "" if obj is None else obj["metadata"]["uid"]
        if not self._uid:
            self._uid = uid
        if uid == self._uid:
            return self.condition(obj)
        gone = self.condition(None)
        self.lost = f"replaced: UID {uid} instead of {self._uid}" if uid else f"deleted: UID {self._uid} is gone"
        if gone.state == "met":
            return replace(gone, unjudged=surroundings(self.last))
        return Look("terminal", self.lost, surroundings(self.last))

    def _states(self, *, strict: bool) -> Iterator[Obj | None]:
        """The object (None: there is none) or the events about it, until the deadline.

        Where ``strict``, time runs from the first look, streams are resumed where they ended, so that no state between
        is missed, and 410 is raised. What a broken stream kept back until the last look leaves its trouble standing.
        """
        version = broken = ""
        while True:
            begun = time.monotonic()
            left = self.deadline - begun
            try:
                if not version or not strict or left <= 0:
                    found, snapshot = self.api.snapshot(*self._where(), fields=self._fields(), timeout=_bounded(left))
                    if strict and not version:
                        left = self.budget.seconds
                        self.deadline = time.monotonic() + left
                    states: list[Obj | None] = [*found]
                    yield from states or [None]
                    self.trouble = broken if strict and version and _newer(found, version) else ""
                    version = snapshot
                if left <= 0:
                    return
                for kind, obj in self._watch(version, left):
                    version, self.trouble = obj["metadata"]["resourceVersion"], ""
                    yield None if kind == "DELETED" and not self.condition.events else obj
                self.trouble = ""
            except ApiError as error:
                if not is_expired(error) and error.code != 429 and error.code < 500:
                    raise
                if is_expired(error) and strict:
                    raise
                self.trouble = str(error)
            except TRANSPORT_ERRORS as error:
                self.trouble = f"{type(error).__name__}: {error}"
            if self.trouble and (ended := self.api.silence.ended()):
                self.ended = ended
                return
            if left > 0:
                broken = self.trouble
            if -left >= _LAST:
                return
            if time.monotonic() - begun < _PAUSE:
                time.sleep(_PAUSE if left <= 0 else max(0.0, min(_PAUSE, self.deadline - time.monotonic())))

    def _watch(self, version: str, left: float) -> Iterator[tuple[str, Obj]]:
        seconds = min(left, self.slice, _SLICE)
        stop = WatchStop()
        timer = threading.Timer(seconds, stop.close)
        timer.daemon = True
        timer.start()
        stream = self.api.watch(
            *self._where(), resource_version=version, fields=self._fields(), seconds=int(seconds) + 1, stop=stop
        )
        with contextlib.closing(stream):  # type: ignore[type-var]
            try:
                yield from stream
            finally:
                timer.cancel()

    def _where(self) -> tuple[str, str | None]:
        return (
            ("Event", self.ref.namespace or "default") if self.condition.events else (self.ref.kind, self.ref.namespace)
        )

    def _fields(self) -> str:
        if self.condition.events:
            return f"involvedObject.kind={self.ref.kind},involvedObject.name={self.ref.name}"
        return f"metadata.name={self.ref.name}"

    def failure(self, kind: type[WaitError], what: str, why: str = "") -> WaitError:
        """The error with its message of four parts; ``why`` it judges nobody stands in the first line."""
        now = time.monotonic()
        looks = f"{self.count} look{'' if self.count == 1 else 's'}"
        seen = self.history[-1][1] if self.history else "nothing"
        steps = [f"+{at:.1f} s {text}" for at, text in self.history[-8:]] + ["no change since"]
        timeline = self.timeline.render(12) if self.timeline is not None else " · ".join(steps)
        evidence = self.evidence() if callable(self.evidence) else self.evidence
        lines = [
            f"{self.ref} {what}" + (f": {_one_line(why)}" if why else ""),
            f"  last seen   {looks}, newest {now - self.newest:.1f} s ago: {seen}",
            *([f"  trouble     {self.trouble}"] if self.trouble else []),
            f"  timeline    {_indented(timeline)}",
            f"  evidence    {_indented(evidence or 'none kept')}",
        ]
        error = kind("\n".join(lines))
        error.last = self.last
        return error


def is_expired(error: ApiError) -> bool:
    """Whether the history asked for is not kept any more."""
    return error.code == 410 or error.reason in ("Expired", "Gone")


def _newer(found: Sequence[Obj], version: str) -> bool:
    return any(int(obj["metadata"]["resourceVersion"]) > int(version) for obj in found)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _bounded(left: float) -> float:
    return max(1.0, min(left, 10.0)) if left > 0 else 10.0


def _indented(text: str) -> str:
    return text.rstrip().replace("\n", "\n" + " " * 14)
