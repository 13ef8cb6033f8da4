"""Kubernetes objects as plain dictionaries, and references to them.

Objects travel as the JSON that the server speaks: no model class stands between a test and the wire, so a field that
a client library does not know is neither dropped nor invented.
"""

from __future__ import annotations

__all__ = ["KINDS", "Obj", "Ref", "Resource", "ref_of"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Obj = dict[str, Any]
"""A Kubernetes object, decoded from JSON."""


class Resource(NamedTuple):
    """Where a kind lives in the API."""

    api_version: str
    plural: str
    namespaced: bool


KINDS: Mapping[str, Resource] = {
    "CertificateSigningRequest": Resource("certificates.k8s.io/v1", "certificatesigningrequests", False),
    "CSIDriver": Resource("storage.k8s.io/v1", "csidrivers", False),
    "ClusterRole": Resource("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "ConfigMap": Resource("v1", "configmaps", True),
    "Event": Resource("v1", "events", True),
    "Job": Resource("batch/v1", "jobs", True),
    "Namespace": Resource("v1", "namespaces", False),
    "Node": Resource("v1", "nodes", False),
    "PersistentVolume": Resource("v1", "persistentvolumes", False),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims", True),
    "Pod": Resource("v1", "pods", True),
    "ResourceQuota": Resource("v1", "resourcequotas", True),
    "Role": Resource("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": Resource("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "Secret": Resource("v1", "secrets", True),
    "SelfSubjectAccessReview": Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", False),
    "Service": Resource("v1", "services", True),
    "ServiceAccount": Resource("v1", "serviceaccounts", True),
    "StatefulSet": Resource("apps/v1", "statefulsets", True),
    "StorageClass": Resource("storage.k8s.io/v1", "storageclasses", False),
    "VolumeAttributesClass": Resource("storage.k8s.io/v1", "volumeattributesclasses", False),
}


@dataclass(frozen=True)
class Ref:
    """Names one object: kind, name and, for namespaced kinds, namespace."""

    kind: str
    name: str
    namespace: str | None = None

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"

    @property
    def path(self) -> str:
        """The object's URL path, without server."""
        return f"{collection_path(self.kind, self.namespace)}/{self.name}"


def collection_path(kind: str, namespace: str | None = None) -> str:
    """The URL path of a kind's collection; all namespaces where ``namespace`` is None."""
    resource = KINDS[kind]
    group = f"/apis/{resource.api_version}" if "/" in resource.api_version else f"/api/{resource.api_version}"
    scope = f"/namespaces/{namespace}" if namespace and resource.namespaced else ""
    return f"{group}{scope}/{resource.plural}"


def ref_of(obj: Mapping[str, Any]) -> Ref:
    """The reference of a whole object."""
    metadata = obj["metadata"]
    return Ref(obj["kind"], metadata["name"], metadata.get("namespace"))
