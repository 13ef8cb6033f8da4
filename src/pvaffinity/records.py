"""What the processes of a session write down for each other about its clusters, see :mod:`pvaffinity.registry`."""

from __future__ import annotations

__all__ = ["cluster", "users", "write"]

import json
from pathlib import Path

from pvaffinity.paths import write_whole
from pvaffinity.providers.base import Cluster


def users(record: Path) -> set[int]:
    """The processes that said they use the cluster of a record, also those that have ended since."""
    directory = record.with_suffix(".users")
    return {int(user.name) for user in directory.iterdir()} if directory.is_dir() else set()


def cluster(intent: dict[str, str]) -> Cluster:
    """The cluster of a record; where its making did not come to an end, enough of it to delete it.

    Args:
        intent: what the record says.
    """
    directory = Path(intent["directory"])
    try:
        return Cluster.load(directory)
    except OSError:
        kubeconfig = directory / "admin.kubeconfig"
        return Cluster(intent["name"], intent["provider"], "", "", directory, kubeconfig, None, frozenset())


def write(path: Path, data: dict[str, str]) -> None:
    """Write a record, whole or not at all."""
    write_whole(path, json.dumps(data))
