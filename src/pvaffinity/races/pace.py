"""How many pods to race at a time: as many as the cluster can start and end within seconds, by what it lately could."""

from __future__ import annotations

__all__ = ["Pace"]

_FIRST = 13
_LEAST = 6
_MOST = 52  # a kubelet takes 110 pods, and others may use the cluster as well
_SECONDS = 10.0


class Pace:
    """The size of the next batch, in pods.

    Starting containers takes processor time, from the API server too, and shots then miss. So a batch is to be over in
    ten seconds: real containers on two busy cores came and went at about one a second, simulated ones three times as
    fast.

    Attributes:
        size: pods of the next batch.
        batches: pods and seconds of every batch so far.
    """

    def __init__(self) -> None:
        self.size = _FIRST
        self.batches: list[tuple[int, float]] = []

    def took(self, pods: int, seconds: float) -> None:
        """A batch of so many pods took so long, from the first shot until all pods were gone."""
        self.batches.append((pods, seconds))
        fitting = int(pods * _SECONDS / max(seconds, 0.1))
        self.size = max(_LEAST, min(fitting, 2 * self.size, _MOST))

    def seconds_for(self, pods: int) -> float:
        """How long so many pods will take, by the last three batches."""
        last = self.batches[-3:]
        taken = sum(pods for pods, _ in last)
        return pods * sum(seconds for _, seconds in last) / taken if taken else 0.0

    def __str__(self) -> str:
        return ", ".join(f"{pods} in {seconds:.0f} s" for pods, seconds in self.batches) or "none"
