"""What there is to see of an object, in one line: for messages and timelines."""

from __future__ import annotations

__all__ = ["condition_of", "describe", "is_leaving", "status_of"]

from collections.abc import Mapping
from typing import Any

from pvaffinity.affinity import Affinity
from pvaffinity.objects import Obj


def describe(obj: Obj | None) -> str:
    """What there is to see of an object, in one line."""
    if obj is None:
        return "no such object"
    if obj.get("kind") == "Event" or "involvedObject" in obj:
        return f"{obj.get('type', '')} {obj.get('reason', '')}: {(obj.get('message') or '').strip()}"
    status = status_of(obj)
    parts = ["terminating"] if is_leaving(obj) else []
    parts += [str(status[key]) for key in ("phase", "reason", "message") if status.get(key)]
    if node := obj.get("spec", {}).get("nodeName"):
        parts.append(f"on {node}")
    parts += [_container(c) for c in status.get("containerStatuses") or ()]
    scheduled = condition_of(obj, "PodScheduled")
    if scheduled.get("status") == "False":
        parts.append(f"PodScheduled=False ({scheduled.get('reason', '')}): {scheduled.get('message', '')}")
    if "readyReplicas" in status or "replicas" in status:
        parts.append(f"{status.get('readyReplicas', 0)} of {status.get('replicas', 0)} replicas ready")
    if affinity := obj.get("spec", {}).get("nodeAffinity"):
        parts.append(f"nodeAffinity {Affinity.from_dict(affinity)}")
    return ", ".join(parts) or "present"


def _container(status: Mapping[str, Any]) -> str:
    for name, detail in (status.get("state") or {}).items():
        why = f" ({detail['reason']})" if detail.get("reason") else ""
        return f"{status['name']} {name}{why}"
    return f"{status['name']} without state"


def condition_of(obj: Obj | None, kind: str) -> Mapping[str, Any]:
    """The condition of this type; {} where there is none."""
    return next((c for c in status_of(obj).get("conditions") or () if c["type"] == kind), {})


def status_of(obj: Obj | None) -> Mapping[str, Any]:
    """Its status; {} where there is none."""
    return (obj or {}).get("status") or {}


def is_leaving(obj: Obj | None) -> bool:
    """Whether its deletion has begun."""
    return obj is not None and "deletionTimestamp" in obj["metadata"]
