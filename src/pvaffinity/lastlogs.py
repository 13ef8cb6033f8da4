"""The logs of a cluster on which something failed, exported before it is deleted."""

from __future__ import annotations

__all__ = ["save", "want"]

import contextlib
import shutil
from pathlib import Path

from pvaffinity.progress import Progress
from pvaffinity.providers.base import Cluster, Power, Provider


def want(record: Path) -> None:
    """Have them saved.

    Args:
        record: the cluster's, in its session's directory (see :mod:`pvaffinity.registry`).
    """
    with contextlib.suppress(OSError):
        record.with_suffix(".logs").touch()


def save(record: Path, cluster: Cluster, provider: Provider, parent: Path, say: Progress) -> None:
    """Export them if somebody wants them and they can be had; says in one line where they are, or why there are none.

    Args:
        record: the cluster's.
        cluster: which still exists.
        provider: its.
        parent: they go to a directory below, of the record's name and the cluster's; what earlier sessions left there
            is removed.
        say: told what is going on.
    """
    wanted, saved = record.with_suffix(".logs"), record.with_suffix(".saved")
    if Power.COMPONENT_LOGS not in cluster.powers or not wanted.exists():
        return
    directory = parent / record.stem
    try:
        if not saved.exists():
            shutil.rmtree(directory, ignore_errors=True)
            saved.touch()
        say(f"saving the logs of {cluster.name}")
        provider.export_logs(cluster, directory / cluster.name)
        say(f"logs of {cluster.name}: {directory / cluster.name}")
        wanted.unlink()  # one that is made in its place begins anew
    except Exception as error:  # noqa: BLE001 - logs that cannot be had must not keep the cluster from its end
        say(f"no logs of {cluster.name}: {(str(error) or repr(error)).splitlines()[0]}")
