"""What befell a pod that has nothing to do with its volume's affinity: what comes of it judges nobody.

A closed list: what is not in it is Kubernetes' doing. So a kubelet that fails a pod for a reason of its own, as
KEP-5381 plans, is judged.
"""

from __future__ import annotations

__all__ = ["surroundings"]

from pvaffinity.describing import condition_of, status_of
from pvaffinity.objects import Obj

_FAILED = {"Evicted", "NodeShutdown", "Terminated", "NodeLost", "Preempting", "UnexpectedAdmissionError"}
"""``status.reason`` of a pod that its node could not keep or take (kubernetes pkg/kubelet: eviction, nodeshutdown,
preemption, kubelet.go); beside these ``OutOfcpu`` and all others that begin like it (lifecycle/predicate.go)."""

_WAITING = {
    *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"),
    *("RegistryUnavailable", "SignatureValidationFailed", "CreateContainerError", "RunContainerError"),
}
"""Why a container waits whose image cannot be had, or that the container runtime cannot start
(pkg/kubelet/images/types.go, kuberuntime)."""


def surroundings(pod: Obj | None) -> str:
    """What its node, or an eviction, did to this pod, in one line; empty where nothing did."""
    status = status_of(pod)
    reason = status.get("reason") or ""
    its_node = reason in _FAILED or reason.startswith("OutOf")
    if status.get("phase") == "Failed" and reason:  # its kubelet says why; no condition says more
        return f"{reason}: {status.get('message', '')}".strip() if its_node else ""
    # Of an eviction, a preemption, and when a lost node's pods are deleted; a kubelet's own wants a reason beside it.
    target = condition_of(pod, "DisruptionTarget")
    if target.get("status") == "True" and (its_node or target.get("reason") != "TerminationByKubelet"):
        return f"{target.get('reason', 'disrupted')}: {target.get('message', '')}".strip()
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _WAITING:
            return f"{waiting['reason']}: {waiting.get('message', '')}".strip()
    return ""
