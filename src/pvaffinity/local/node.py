"""One node: an unmodified kubelet, its configuration and its labels.

What is switched off is what needs a real machine beneath (cgroups, iptables, swap, image disks); the volume manager,
its node-affinity check, probes, events and status are the kubelet's own.
"""

from __future__ import annotations

__all__ = ["Node", "kubelet_configuration", "plan_nodes", "write_state"]

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pvaffinity.clusterconfig import ClusterConfig, NodeSpec
from pvaffinity.local import network
from pvaffinity.local.certificates import Pair

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
ROOT = "/var/lib/kubelet"  # as the node itself sees it

_OWN = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
"""Labels with a Kubernetes prefix that a kubelet may set (k8s.io/kubernetes pkg/apis/core: well_known_labels.go)."""


@dataclass(frozen=True)
class Node:
    """One node of a cluster.

    Attributes:
        address: its InternalIP.
        state: its directory, seen by the node as ``/var/lib/kubelet``.
    """

    spec: NodeSpec
    address: str
    state: Path

    @property
    def name(self) -> str:
        """The name of the Node object."""
        return self.spec.name

    @property
    def socket(self) -> Path:
        """Where its container runtime listens."""
        return self.state / "cri.sock"

    @property
    def labels(self) -> dict[str, str]:
        """Labels the kubelet gives itself."""
        return {k: v for k, v in self.spec.labels.items() if _self_service(k)}

    @property
    def granted_labels(self) -> dict[str, str]:
        """Labels an administrator must set, since NodeRestriction refuses them from a kubelet."""
        granted = {k: v for k, v in self.spec.labels.items() if not _self_service(k)}
        return granted | ({CONTROL_PLANE: ""} if self.spec.role == "control-plane" else {})

    def argv(self, kubelet: Path) -> list[str]:
        """The command line, with paths as the node sees them."""
        flags = {
            "config": f"{ROOT}/config.json",
            "kubeconfig": f"{ROOT}/kubeconfig",
            "hostname-override": self.name,
            "node-ip": self.address,
            "cert-dir": f"{ROOT}/pki",
            "root-dir": ROOT,
        }
        if self.labels:
            flags["node-labels"] = ",".join(f"{key}={value}" for key, value in self.labels.items())
        if self.spec.role == "control-plane":
            flags["register-with-taints"] = f"{CONTROL_PLANE}:NoSchedule"
        return [str(kubelet), *(f"--{key}={value}" for key, value in flags.items())]


def _self_service(label: str) -> bool:
    prefix = label.partition("/")[0] if "/" in label else ""
    domain = ".".join(prefix.split(".")[-2:])
    if domain not in ("kubernetes.io", "k8s.io"):
        return True
    return label in _OWN or prefix.endswith(("kubelet.kubernetes.io", "node.kubernetes.io"))


def plan_nodes(config: ClusterConfig, directory: Path) -> tuple[Node, ...]:
    """The nodes of a configuration, each with an address and a directory below ``directory``."""
    return tuple(
        Node(spec, network.node_address(number), directory / spec.name) for number, spec in enumerate(config.nodes)
    )


def kubelet_configuration(node: Node, config: ClusterConfig) -> dict[str, Any]:
    """The KubeletConfiguration; the cluster configuration's own patches go on top."""
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": 10250,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{ROOT}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{ROOT}/serving.crt",
        "tlsPrivateKeyFile": f"{ROOT}/serving.key",
        "containerRuntimeEndpoint": f"unix://{ROOT}/cri.sock",
        "podLogsDir": str(node.state / "logs"),  # one name for the kubelet and for the runtime outside
        "volumePluginDir": f"{ROOT}/volumeplugins",
        "clusterDomain": "cluster.local",
        "clusterDNS": ["10.96.0.10"],
        "resolvConf": "",
        # no cgroups, iptables, swap or image disk of our own
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        # quick rather than sparing
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "1m",
        "syncFrequency": "1s",
        "volumeStatsAggPeriod": "-1s",
        "containerLogMonitorInterval": "1h",
    }
    gates = dict(config.feature_gates) | {
        "KubeletInUserNamespace": True,
        "ReloadKubeletServerCertificateFile": False,  # an inotify instance less; users have 128
    }
    return _merge(document | {"featureGates": gates}, config.kubelet)


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def write_state(node: Node, config: ClusterConfig, authority: Pair, serving: Pair) -> None:
    """Put configuration and certificates where the node will look for them."""
    for name in ("logs", "volumeplugins"):
        (node.state / name).mkdir(parents=True, exist_ok=True)
    (node.state / "config.json").write_text(json.dumps(kubelet_configuration(node, config), indent=1), encoding="utf-8")
    (node.state / "ca.crt").write_bytes(authority.certificate.read_bytes())
    (node.state / "serving.crt").write_bytes(serving.certificate.read_bytes())
    key = node.state / "serving.key"
    key.touch(mode=0o600)
    key.write_bytes(serving.key.read_bytes())
