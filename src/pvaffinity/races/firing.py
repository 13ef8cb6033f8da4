"""Aiming and firing: which offset to try next, and two requests sent so far apart that it is hit."""

from __future__ import annotations

__all__ = ["Gun", "Plan"]

import math
import random
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from pvaffinity.api import MERGE_PATCH, TRANSPORT_ERRORS, Api
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj, Ref
from pvaffinity.races.observe import SweepError
from pvaffinity.races.record import step_of
from pvaffinity.verdicts import Write
from pvaffinity.wire import is_transient

_LEAD = 0.004  # seconds between the planning of a round and its first shot


class Plan:
    """Which offsets to aim at next: those of steps that still lack rounds, in random order."""

    def __init__(self, offsets_ms: Sequence[float], rounds: int, rng: random.Random) -> None:
        self._offsets, self._rounds, self._rng = tuple(offsets_ms), rounds, rng
        self._hits: Counter[float] = Counter()
        self._useful: deque[bool] = deque([True] * 10, maxlen=40)  # whether recent shots counted for a lacking step
        self.wanted = rounds * len(self._offsets)

    @property
    def done(self) -> int:
        """Rounds that count."""
        return sum(min(self._hits[offset], self._rounds) for offset in self._offsets)

    def hit(self, measured_ms: float | None) -> None:
        """A round was fired and hit this offset; None for one that does not count, as its answer was lost."""
        step, before = None if measured_ms is None else step_of(measured_ms, self._offsets), self.done
        if step is not None:
            self._hits[step] += 1
        self._useful.append(self.done > before)

    @property
    def lacking(self) -> int:
        """Rounds still to be had."""
        return self.wanted - self.done

    def shots_needed(self) -> int:
        """How many shots the lacking rounds will take if as many miss as lately, and a few more."""
        return 4 + math.ceil(self.lacking * len(self._useful) / max(1, sum(self._useful)))

    def aim(self) -> float | None:
        """The offset to try now, the likelier the more rounds its step lacks; None when every step has its rounds."""
        lack = [max(0, self._rounds - self._hits[offset]) for offset in self._offsets]
        return self._rng.choices(self._offsets, lack)[0] if any(lack) else None


class Gun:
    """Fires an update and a creation from two threads, so far apart that the wanted offset is hit."""

    def __init__(self, api: Api, after: Obj) -> None:
        self._api = api.once()  # a second try would be a shot at another offset than the one that is measured
        self._patch = {"spec": {"nodeAffinity": after}}
        self._took: deque[float] = deque([0.005], maxlen=9)  # seconds from sending an update to its acknowledgement

    def fire(self, name: str, pod: Obj, offset_ms: float) -> tuple[Write, Write]:
        """One round. Before the acknowledgement one can only aim, by how long recent updates took; after it, one waits.

        Raises:
            SweepError: the server refused one of the two.
        """
        offset, took = offset_ms / 1e3, statistics.median(self._took)
        start = time.monotonic() + _LEAD
        update_at = start + max(0.0, -offset - took)
        create_at = start + max(0.0, took + offset)
        acknowledged = threading.Event()
        results: dict[str, Write] = {}
        errors: list[ApiError] = []

        def update() -> None:
            _until(update_at)
            ref = Ref("PersistentVolume", name)
            results["update"] = _timed(lambda: self._api.patch(ref, self._patch, MERGE_PATCH).body, errors)
            acknowledged.set()

        thread = threading.Thread(target=update, name="race-update", daemon=True)
        thread.start()
        if offset < 0:
            _until(create_at)
        else:
            acknowledged.wait(60)
            _until(time.monotonic() + offset)
        results["creation"] = _timed(lambda: self._api.create(pod), errors)
        thread.join(60)
        if errors:
            raise SweepError(f"the server refused a write of round {name}: {errors[0]}") from errors[0]
        written = results.get("update", Write(time.monotonic_ns()))
        if written.acknowledged is not None:
            self._took.append((written.acknowledged - written.sent) / 1e9)
        return written, results["creation"]


def _timed(request: Callable[[], Obj], errors: list[ApiError]) -> Write:
    sent = time.monotonic_ns()
    try:
        stored = request()
    except (ApiError, *TRANSPORT_ERRORS) as error:
        if isinstance(error, ApiError) and not is_transient(error):
            errors.append(error)
        return Write(sent)  # no answer: it may or may not have been stored, and the judge will say so
    return Write(sent, time.monotonic_ns(), int(stored["metadata"]["resourceVersion"]))


def _until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)  # the offset itself is what is under test; there is no condition to wait for
