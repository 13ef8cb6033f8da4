"""When a cluster is usable: every node Ready and without taints of its own start, ServiceAccounts there."""

from __future__ import annotations

__all__ = ["Usable"]

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pvaffinity.local.readiness import Readiness, https_request

_STARTING = ("node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized")

_PATIENCE = 5.0
"""Seconds for an answer: kubelets that all start at once keep the API server busy."""


@dataclass
class Usable:
    """Asks the API server what is still missing.

    Attributes:
        access: an administrator's certificate; ``target`` is host:port.
        nodes: the names that must be Ready.
        labels: of each node, the labels a kubelet may not give itself (NodeRestriction), set here as kubeadm does.
    """

    access: Readiness
    nodes: tuple[str, ...]
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _labelled: set[str] = field(default_factory=set)

    def missing(self) -> str:
        """One line that says what is missing; "" when the cluster is usable."""
        code, body = self._get("/api/v1/nodes")
        if code != 200:
            return f"the API server lists no nodes ({code or 'no answer'})"
        found = {node["metadata"]["name"]: node for node in json.loads(body)["items"]}
        for name in self.nodes:
            if name in found and name not in self._labelled:
                self._label(name)
        for name in self.nodes:
            if name not in found:
                return f"node {name} has not registered"
            if reason := _unready(found[name]):
                return f"node {name} is not ready: {reason}"
            if name not in self._labelled:
                return f"node {name} has not got its labels"
        if self._get("/api/v1/namespaces/default/serviceaccounts/default")[0] != 200:
            return "the ServiceAccount default/default does not exist"
        return ""

    def _label(self, name: str) -> None:
        if labels := self.labels.get(name):
            body = json.dumps({"metadata": {"labels": dict(labels)}}).encode()
            headers = {"Content-Type": "application/merge-patch+json"}
            path = f"/api/v1/nodes/{name}"
            if https_request(self.access, "PATCH", self.access.target, path, body, headers, _PATIENCE)[0] != 200:
                return
        self._labelled.add(name)

    def _get(self, path: str) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        return https_request(self.access, "GET", self.access.target, path, headers=headers, timeout=_PATIENCE)


def _unready(node: Mapping[str, Any]) -> str:
    for condition in node["status"].get("conditions", ()):
        if condition["type"] == "Ready" and condition["status"] != "True":
            return str(condition.get("message", "NotReady"))
    if not any(c["type"] == "Ready" for c in node["status"].get("conditions", ())):
        return "it has not reported yet"
    for taint in node["spec"].get("taints", ()):
        if taint["key"] in _STARTING:
            return f"it has the taint {taint['key']}"
    return ""
