"""The flags of etcd and the three control-plane components, as Kubernetes documents them; nothing is patched.

What a cluster configuration says (``featureGates``, ``runtimeConfig``, ``extraArgs``) goes on top of what is needed
to run on one machine without root.
"""

from __future__ import annotations

__all__ = ["ETCD", "ServerFiles", "api_server", "controller_manager", "etcd", "feature_gates", "scheduler"]

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pvaffinity.clusterconfig import ClusterConfig
from pvaffinity.local import network
from pvaffinity.local.certificates import Pair

ETCD = "127.0.0.1:2379"


@dataclass(frozen=True)
class ServerFiles:
    """Certificates and keys by their part."""

    ca: Pair
    server: Pair
    kubelet_client: Pair
    service_accounts: Pair
    admin: Pair
    directory: Path


def feature_gates(config: ClusterConfig, component: str) -> dict[str, bool]:
    """All gates of one binary: the document's ``featureGates``, then its own ``extraArgs``."""
    gates = dict(config.feature_gates)
    for pair in config.component_args.get(component, {}).get("feature-gates", "").split(","):
        name, sign, value = pair.partition("=")
        if sign:
            gates[name.strip()] = value.strip().lower() == "true"
    return gates


def etcd(data: Path) -> list[str]:
    """Etcd without fsync: a cluster that ends with its session has nothing to lose."""
    return _render(
        {
            "data-dir": str(data),
            "listen-client-urls": f"http://{ETCD}",
            "advertise-client-urls": f"http://{ETCD}",
            "listen-peer-urls": "http://127.0.0.1:2380",
            "initial-advertise-peer-urls": "http://127.0.0.1:2380",
            "initial-cluster": "default=http://127.0.0.1:2380",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }
    )


def api_server(config: ClusterConfig, files: ServerFiles) -> list[str]:
    """kube-apiserver: Node and RBAC authorisation, NodeRestriction, client certificates."""
    flags = {
        "etcd-servers": f"http://{ETCD}",
        "bind-address": "0.0.0.0",  # of the private network
        "secure-port": str(network.API_PORT),
        "advertise-address": network.API_ADDRESS,  # without a default route it must be told
        "tls-cert-file": str(files.server.certificate),
        "tls-private-key-file": str(files.server.key),
        "client-ca-file": str(files.ca.certificate),
        "kubelet-client-certificate": str(files.kubelet_client.certificate),
        "kubelet-client-key": str(files.kubelet_client.key),
        "kubelet-certificate-authority": str(files.ca.certificate),
        "kubelet-preferred-address-types": "InternalIP",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "service-account-key-file": str(files.service_accounts.certificate),
        "service-account-signing-key-file": str(files.service_accounts.key),
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-cluster-ip-range": network.SERVICE_RANGE,
        "allow-privileged": "true",
    }
    if config.runtime_config:
        flags["runtime-config"] = ",".join(f"{key}={value}" for key, value in config.runtime_config.items())
    return _component(config, "kube-apiserver", flags)


def controller_manager(config: ClusterConfig, files: ServerFiles, kubeconfig: Path) -> list[str]:
    """kube-controller-manager, with all its controllers and the signer of users' certificates."""
    flags = {
        **_client_flags(files.directory / "kube-controller-manager", kubeconfig),
        "use-service-account-credentials": "true",
        "service-account-private-key-file": str(files.service_accounts.key),
        "root-ca-file": str(files.ca.certificate),
        # For users only: each of the four signers would take inotify instances for its files.
        "cluster-signing-kube-apiserver-client-cert-file": str(files.ca.certificate),
        "cluster-signing-kube-apiserver-client-key-file": str(files.ca.key),
        "pvclaimbinder-sync-period": "500ms",  # else a conflict costs 15 s
    }
    return _component(config, "kube-controller-manager", flags)


def scheduler(config: ClusterConfig, files: ServerFiles, kubeconfig: Path) -> list[str]:
    """kube-scheduler with its default profile."""
    return _component(config, "kube-scheduler", _client_flags(files.directory / "kube-scheduler", kubeconfig))


def _client_flags(directory: Path, kubeconfig: Path) -> dict[str, str]:
    """What the API server's two clients have in common."""
    return {
        "kubeconfig": str(kubeconfig),
        "authentication-kubeconfig": str(kubeconfig),
        "authorization-kubeconfig": str(kubeconfig),
        "bind-address": "127.0.0.1",
        "cert-dir": str(directory),
        "leader-elect": "false",
        "kube-api-qps": "500",  # else the controller manager's start is throttled for 4 s
        "kube-api-burst": "1000",
    }


def _component(config: ClusterConfig, binary: str, flags: dict[str, str]) -> list[str]:
    flags |= {k: v for k, v in config.component_args.get(binary, {}).items() if k != "feature-gates"}
    if gates := feature_gates(config, binary):
        flags["feature-gates"] = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))
    return _render(flags)


def _render(flags: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
