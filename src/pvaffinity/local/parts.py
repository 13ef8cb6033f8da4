"""Parts of a running cluster that are stopped and started on order: kubelets, and components with other flags."""

from __future__ import annotations

__all__ = ["Parts"]

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pvaffinity.local.daemon import Daemon, StartError

_GRACE = 2.0  # seconds; an API server would wait longer, for watches that never end by themselves


class Parts:
    """Obeys the orders ``kubelet-stop``, ``kubelet-start``, ``component-stop`` and ``component-start``.

    Args:
        daemons: of the cluster, by name.
        enter: by the name of a node, what its kubelet does before it runs.
    """

    def __init__(self, daemons: dict[str, Daemon], enter: Callable[[str], Callable[[], None]]) -> None:
        self._daemons = daemons
        self._enter = enter
        self._awaited: dict[str, int] = {}  # the component that is being started, and the order that awaits it

    @property
    def awaited(self) -> bool:
        """Whether an order awaits its answer."""
        return bool(self._awaited)

    def obey(self, order: Mapping[str, Any], state: str) -> dict[str, Any] | None:
        """The answer to an order; None where :meth:`answers` has it later."""
        kind = order["do"]
        if kind in ("kubelet-stop", "kubelet-start"):
            return self._kubelet(kind, order.get("node", ""))
        if kind in ("component-stop", "component-start"):
            return self._component(order, state)
        return {"error": f"unknown order {kind!r}"}

    def answers(self) -> Iterator[dict[str, Any]]:
        """What has become of the components that are awaited, as far as it is decided; with the order's ``id``."""
        for name, order in list(self._awaited.items()):
            try:
                if not self._daemons[name].check():
                    continue
                answer: dict[str, Any] = {"ok": True}
            except StartError as error:
                fix = "correct its flags; started without any, it runs as configured"
                answer = {"error": error.what, "log": error.log, "fix": fix}
            del self._awaited[name]
            yield answer | {"id": order}

    def _kubelet(self, order: str, node: str) -> dict[str, Any]:
        daemon = self._daemons.get(f"kubelet-{node}")
        if daemon is None:
            nodes = sorted(d.spec.node for d in self._daemons.values() if d.spec.node)
            return {"error": f"no node {node!r}", "fix": f"nodes are {', '.join(nodes)}"}
        if order == "kubelet-stop":
            daemon.stop()
        elif not daemon.running:
            try:
                daemon.start(self._enter(node))
            except StartError as error:
                return {"error": error.what, "fix": "see the supervisor's log"}
        return {"ok": True}

    def _component(self, order: Mapping[str, Any], state: str) -> dict[str, Any] | None:
        name, argv = order.get("component", ""), tuple(order.get("argv", ()))
        daemon = self._daemons.get(name)
        if daemon is None or daemon.spec.node:
            return {"error": f"no component {name!r}", "fix": "the order status says what there is"}
        if name in self._awaited or state != "ready":
            return {"error": f"{name} is just being started", "fix": "wait until it is ready"}
        if order["do"] == "component-stop":
            daemon.stop(seconds=_GRACE)
            return {"ok": True}
        seconds = order.get("seconds")  # for it to become ready
        try:
            if not daemon.running or daemon.argv != (argv or daemon.spec.argv):
                daemon.stop(seconds=_GRACE)
                daemon.start(argv=argv, seconds=seconds)
        except StartError as error:
            return {"error": error.what, "fix": "see whether the program is still there"}
        self._awaited[name] = order["id"]
        return None
