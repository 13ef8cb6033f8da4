"""What is asked of the nodes of a new kind cluster: that they are usable, and their kubectl."""

from __future__ import annotations

__all__ = ["await_ready", "kubectl"]

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from pvaffinity.api import Api
from pvaffinity.budgets import Budget
from pvaffinity.conditions import Condition, Look
from pvaffinity.engine import Engine, EngineError
from pvaffinity.objects import Obj, Ref
from pvaffinity.waiting import until

_CONDITION = "node.kubernetes.io/"  # taints that follow conditions; they go a moment after the node becomes Ready
_READY = Budget("node-ready", 120, "patience", "a node becomes Ready", "image unpacking and CNI on a busy machine")


def _is_ready(obj: Obj | None) -> Look:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    ready: Obj = next((c for c in conditions if c["type"] == "Ready"), {})
    taints = [t["key"] for t in ((obj or {}).get("spec") or {}).get("taints") or () if t["key"].startswith(_CONDITION)]
    if ready.get("status") == "True":
        return Look("not yet", f"Ready, tainted {', '.join(taints)}") if taints else Look("met", "Ready")
    return Look("not yet", f"not Ready: {ready.get('reason', 'no condition')} {ready.get('message', '')}".rstrip())


_IS_READY = Condition("Ready and free of taints", _is_ready)
_EXISTS = Condition("there", lambda obj: Look("met" if obj else "not yet", "there" if obj else "not there"))


def await_ready(api: Api, nodes: Sequence[str]) -> str:
    """Wait until every node can take pods and ServiceAccounts are made; returns the server's version, such as 1.37.2.

    Raises:
        WaitError: one did not get there.
        ApiError: the server refused.
    """
    for node in nodes:
        until(api, Ref("Node", node), _IS_READY, _READY)
    until(api, Ref("ServiceAccount", "default", "default"), _EXISTS, _READY)
    version: str = json.loads(api.text("/version"))["gitVersion"]
    return version.removeprefix("v")


def kubectl(engine: Engine, node: str, directory: Path) -> Path | None:
    """The node's own kubectl, which is of the cluster's version; None where it would not run here."""
    target = directory / "kubectl"
    if not engine.local:
        return None
    with contextlib.suppress(EngineError, OSError):
        engine.run("cp", f"{node}:/usr/bin/kubectl", str(target))
        if os.access(target, os.X_OK):
            return target
    return None
