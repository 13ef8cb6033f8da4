"""The objects that tests create, as plain dictionaries with nothing in them that a check does not need."""

from __future__ import annotations

__all__ = [
    "MARK",
    "SHELL_IMAGE",
    "SOURCES",
    "bound_pair",
    "claim",
    "on_one_of",
    "persistent_volume",
    "pod",
    "stateful_set",
]

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pvaffinity.objects import Obj, Ref

MARK = "pvaffinity.dev/test"
"""Label on everything the project creates; its value names the test's namespace."""

IMAGE = "registry.k8s.io/pause:3.10"
SHELL_IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1"
"""For containers that do something: the image that Kubernetes' own end-to-end tests use."""

MODES = ["ReadWriteOnce"]

SOURCES: Mapping[str, Any] = {
    "hostPath": lambda _: {"hostPath": {"path": "/tmp", "type": "Directory"}},  # on every node; nothing is left there
    "local": lambda name: {"local": {"path": f"/tmp/{name}"}},
    "csi": lambda name: {"csi": {"driver": "disks.pvaffinity.dev", "volumeHandle": name}},
    "nfs": lambda name: {"nfs": {"server": "127.0.0.1", "path": f"/{name}"}},
}
"""Volume sources by name; each takes the volume's name. Only hostPath is ever mounted by a test's pod."""


def persistent_volume(
    name: str,
    node_affinity: Mapping[str, Any] | None,
    *,
    mark: str,
    source: str | Mapping[str, Any] = "hostPath",
    claim_ref: Ref | None = None,
    reclaim: str = "Retain",
    storage_class: str = "",
) -> Obj:
    """A PersistentVolume of 1 GiB, by default in no storage class; ``claim_ref`` reserves it for one claim.

    ``source`` is a name of :data:`SOURCES`, or the source itself, such as ``{"local": {"path": "/data"}}``.
    """
    spec: Obj = {
        "capacity": {"storage": "1Gi"},
        "accessModes": MODES,
        "persistentVolumeReclaimPolicy": reclaim,
        "storageClassName": storage_class,
        "volumeMode": "Filesystem",
        **(SOURCES[source](name) if isinstance(source, str) else source),
    }
    if node_affinity is not None:
        spec["nodeAffinity"] = dict(node_affinity)
    if claim_ref is not None:
        spec["claimRef"] = {"namespace": claim_ref.namespace, "name": claim_ref.name}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {MARK: mark}},
        "spec": spec,
    }


def claim(ref: Ref, volume: str, *, storage_class: str = "") -> Obj:
    """A claim that names its volume. The class is always given, else a default class would take the claim away."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": ref.name, "namespace": ref.namespace, "labels": {MARK: str(ref.namespace)}},
        "spec": {
            "accessModes": MODES,
            "storageClassName": storage_class,
            "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def bound_pair(ref: Ref) -> tuple[Obj, Obj]:
    """A PersistentVolume without a node affinity, and a claim of the same name that counts as bound to it at once.

    The annotation is what the scheduler goes by (k8s.io/kubernetes pkg/scheduler/framework/plugins/volumebinding,
    isPVCFullyBound); the controller manager's binder writes the other side when it comes to it. Create the volume
    first: a claim that is bound to nothing is Lost. A storage class of their own keeps other claims away.
    """
    volume = persistent_volume(ref.name, None, mark=str(ref.namespace), storage_class=ref.name)
    bound = claim(ref, ref.name, storage_class=ref.name)
    bound["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return volume, bound


def pod_spec(claims: Sequence[str], node_selector: Mapping[str, str] | None = None, **more: Any) -> Obj:
    """A pod spec whose container *mounts* every claim: the kubelet ignores a volume that nothing mounts."""
    return {
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "reader",
                "image": IMAGE,
                "volumeMounts": [{"name": name, "mountPath": f"/volumes/{name}"} for name in claims],
            }
        ],
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims],
        **({"nodeSelector": dict(node_selector)} if node_selector else {}),
        **more,
    }


def on_one_of(nodes: Collection[str]) -> Obj:
    """The affinity of a pod that goes to one of these nodes, by name. The scheduler heeds it as any other."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in sorted(nodes)]
    terms = [{"matchFields": [field]} for field in fields]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def pod(ref: Ref, claims: Sequence[str], node_selector: Mapping[str, str] | None = None, **spec: Any) -> Obj:
    """A pod that mounts the claims; pinned by ``node_selector``, since ``spec.nodeName`` bypasses the scheduler."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": ref.name, "namespace": ref.namespace, "labels": {MARK: str(ref.namespace)}},
        "spec": pod_spec(claims, node_selector, **spec),
    }


def stateful_set(ref: Ref, claims: Sequence[str], replicas: int = 1) -> Obj:
    """A StatefulSet whose pods mount existing claims."""
    labels = {"app": ref.name, MARK: str(ref.namespace)}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": ref.name, "namespace": ref.namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "serviceName": ref.name,
            "selector": {"matchLabels": {"app": ref.name}},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(claims)},
        },
    }
