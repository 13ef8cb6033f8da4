"""Whether a cluster is usable: Ready nodes in a new one, and more in one whose component was started anew.

A component that answers healthy may still have watches broken off, each of which is tried again in its own time. So
every node has to run a pod with a volume, all made now: that takes the API server, the controller manager's binder and
ServiceAccounts, the scheduler's view of pods, claims and volumes, and every kubelet. No volume has an affinity, since
that is under test: a node selector brings each pod to its node.
"""

from __future__ import annotations

__all__ = ["await_nodes", "await_usable", "exists"]

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence

from pvaffinity import manifests
from pvaffinity.affinity import HOSTNAME
from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.budgets import Budget, budget_of
from pvaffinity.conditions import Condition, Look, is_gone, is_running
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj, Ref
from pvaffinity.topology import Node
from pvaffinity.waiting import until

_CONDITION = "node.kubernetes.io/"  # taints that follow conditions; they go a moment after the node becomes Ready


def await_nodes(api: Api, nodes: Sequence[str], budget: str | Budget) -> None:
    """Wait until every node can take pods, and until ServiceAccounts are made; each may take the whole budget.

    Raises:
        WaitError: one did not get there.
        ApiError: the server refused.
    """
    for node in nodes:
        until(api, Ref("Node", node), _is_ready, budget)
    until(api, Ref("ServiceAccount", "default", "default"), exists, budget)


def await_usable(api: Api, nodes: Sequence[Node], budget: str = "usable") -> None:
    """Run a pod with a volume of its own on each node; whatever the proof takes is removed again.

    Args:
        api: an administrator's.
        nodes: those that an ordinary pod can be placed on.
        budget: for all of it.

    Raises:
        WaitError: something was not done within the budget. Notes name what could not be removed afterwards.
        ApiError: the server refused.
    """
    deadline = time.monotonic() + budget_of(budget).seconds

    def left() -> Budget:
        whole = budget_of(budget)
        rest = max(1.0, deadline - time.monotonic())
        return Budget(whole.name, round(rest, 1), whole.kind, whole.awaited, whole.source)

    name = f"pv-usable-{secrets.token_hex(4)}"
    for node in nodes:
        until(api, Ref("Node", node.name), _is_ready, left())
    api.create({"kind": "Namespace", "metadata": {"name": name, "labels": {manifests.MARK: name}}})
    with _removed(api, Ref("Namespace", name)):
        until(api, Ref("ServiceAccount", "default", name), exists, left())
        _run_pods(api, name, nodes, left)


def _run_pods(api: Api, namespace: str, nodes: Sequence[Node], left: Callable[[], Budget]) -> None:
    with contextlib.ExitStack() as stack:
        pods = []
        for number, node in enumerate(nodes):
            name = f"{namespace}-{number}"
            claim, pod = Ref("PersistentVolumeClaim", name, namespace), Ref("Pod", name, namespace)
            objects = (
                manifests.persistent_volume(name, None, mark=namespace, claim_ref=claim),
                manifests.claim(claim, name),
                manifests.pod(pod, [name], {HOSTNAME: node.labels[HOSTNAME]}),
            )
            for obj, ref in zip(objects, (Ref("PersistentVolume", name), claim, pod), strict=True):
                api.create(obj)
                stack.enter_context(_removed(api, ref))
            pods.append(pod)
        for pod in pods:
            until(api, pod, is_running, left())
    for number, _ in enumerate(nodes):  # that it goes shows the controllers that protect it
        until(api, Ref("PersistentVolume", f"{namespace}-{number}"), is_gone, left())


@contextlib.contextmanager
def _removed(api: Api, ref: Ref) -> Iterator[None]:
    """Delete it at the end; what cannot be deleted is told, beside whatever else went wrong."""
    try:
        yield
    except BaseException as error:
        try:
            _delete(api, ref)
        except (ApiError, *TRANSPORT_ERRORS) as failure:
            error.add_note(_left(ref, failure))
        raise
    try:
        _delete(api, ref)
    except (ApiError, *TRANSPORT_ERRORS) as failure:
        failure.add_note(_left(ref, failure))
        raise


def _delete(api: Api, ref: Ref) -> None:
    api.delete(ref, grace_seconds=0 if ref.kind == "Pod" else None)


def _left(ref: Ref, failure: Exception) -> str:
    return f"{ref} was not removed: {failure}"


def _node(obj: Obj | None) -> Look:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    ready: Obj = next((c for c in conditions if c["type"] == "Ready"), {})
    taints = [t["key"] for t in ((obj or {}).get("spec") or {}).get("taints") or () if t["key"].startswith(_CONDITION)]
    if ready.get("status") == "True":
        return Look("not yet", f"Ready, tainted {', '.join(taints)}") if taints else Look("met", "Ready")
    return Look("not yet", f"not Ready: {ready.get('reason', 'no condition')} {ready.get('message', '')}".rstrip())


_is_ready = Condition("Ready and free of taints", _node)
exists = Condition("there", lambda obj: Look("met" if obj else "not yet", "there" if obj else "not there"))
"""An object that is there, whatever its state."""
