"""Progress of long work in lines: what is being done, which of how many, and for how long."""

from __future__ import annotations

__all__ = ["Reporter"]

import time

from pvaffinity.progress import Progress, quiet


class Reporter:
    """Passes lines on to a :data:`Progress`, none of the repeated ones more often than every ``every`` seconds."""

    def __init__(self, progress: Progress = quiet, every: float = 15.0) -> None:
        self.every = every
        self._progress = progress
        self._task = ""
        self._started = self._last = time.monotonic()

    def start(self, task: str) -> None:
        """Begin a task, such as ``kubelet 1.37.2 (4 of 6)``; its clock starts now."""
        self._task = task
        self._started = self._last = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the task began."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Tell something that happens once."""
        self._last = time.monotonic()
        self._progress(f"{self._task}: {text}" if self._task else text)

    def tick(self, text: str) -> None:
        """Tell that the same work goes on; call as often as you like."""
        if time.monotonic() - self._last >= self.every:
            self.say(f"{text}, {self.elapsed:.0f} s")
