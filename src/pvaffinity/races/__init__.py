"""Races between a volume's update and pods' creation: recorded first (:func:`sweep`), judged afterwards.

record = sweep(api, namespace=ns, before=in_zone("us-east1-b"), after=in_zone("us-east1-c"), image=pause)
record.save(path)
summary = record.summary()
record.chart(path.with_suffix(".svg"))
assert summary.holds, str(summary)
"""

from __future__ import annotations

__all__ = ["CUT_SHORT", "OFFSETS_MS", "Record", "Step", "Summary", "SweepError", "sweep"]

from pvaffinity.races.observe import SweepError
from pvaffinity.races.record import Record, Step, Summary
from pvaffinity.races.sweep import CUT_SHORT, OFFSETS_MS, sweep
