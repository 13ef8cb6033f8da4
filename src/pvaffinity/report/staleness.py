"""How far the scheduler's view of the volumes was behind the API server, in one line a cluster."""

from __future__ import annotations

__all__ = ["percentile", "staleness"]

import math
from collections.abc import Sequence

from pvaffinity.report.model import ClusterResult


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least this share of them does not exceed (nearest rank).

    Raises:
        ValueError: there is no sample.
    """
    if not samples:
        raise ValueError("there is no sample")
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def staleness(cluster: ClusterResult) -> str:
    """Count, p50, p99 and maximum; empty where no update was waited for.

    Each is an upper bound: from the acknowledgement of an update until a pod was placed that needs a volume made
    afterwards, so that making three objects and placing the pod are in it.
    """
    samples = cluster.staleness
    if not samples:
        return ""
    marks = (percentile(samples, 0.5), percentile(samples, 0.99), max(samples))
    p50, p99, most = (f"{seconds * 1000:.0f} ms" for seconds in marks)
    updates = f"{len(samples)} update{'' if len(samples) == 1 else 's'}"
    return f"the scheduler went by {updates} within {p50} (p50), {p99} (p99), {most} (max) of the acknowledgement"
