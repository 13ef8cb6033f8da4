"""An API client that answers lists and watches of pods from a script."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any


def pod(version: int, node: str | None = None, **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "resourceVersion": str(version)},
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


class Server:
    """Answers lists and watches of pods from a script; events are none. An ``ApiError`` in the script is raised."""

    def __init__(self, lists: list[list[dict[str, Any]]], watches: list[list[Any]]) -> None:
        self.lists, self.watches = iter(lists), iter(watches)

    def snapshot(self, kind: str, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], str]:
        """The next list of the script."""
        return (next(self.lists) if kind == "Pod" else []), "1"

    def watch(self, kind: str, *_: Any, stop: Any, **__: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """The next stream of the script; the last one stays open until it is stopped."""
        for entry in next(self.watches, None) or () if kind == "Pod" else ():
            if isinstance(entry, Exception):
                raise entry
            yield entry
        if kind != "Pod" or not self._more():
            while not stop.closed:
                threading.Event().wait(0.01)

    def _more(self) -> bool:
        self.watches = iter(rest := list(self.watches))
        return bool(rest)
