"""A cluster configuration becomes flags, kubelet settings and labels, with nothing lost on the way."""

from __future__ import annotations

import json

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from pvaffinity.clusterconfig import load_config
from pvaffinity.local import controlplane
from pvaffinity.local.node import kubelet_configuration, plan_nodes
from pvaffinity.local.owner import Owner
from pvaffinity.local.plan import MARKER, environment, files_of, plan, write_files


def _document(tmp_path, text):
    path = tmp_path / "own.yaml"
    path.write_text("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n" + text)
    return load_config(str(path))


def _flags(argv):
    return dict(arg.removeprefix("--").split("=", 1) for arg in argv)


def test_feature_gates_reach_every_component(tmp_path):
    """A gate under featureGates is set on the API server, controller manager, scheduler and every kubelet."""
    config = load_config("gate-on")
    files = files_of(tmp_path)
    for argv in (
        controlplane.api_server(config, files),
        controlplane.controller_manager(config, files, tmp_path),
        controlplane.scheduler(config, files, tmp_path),
    ):
        assert _flags(argv)["feature-gates"] == "MutablePVNodeAffinity=true"
    node = plan_nodes(config, tmp_path)[0]
    assert kubelet_configuration(node, config)["featureGates"]["MutablePVNodeAffinity"] is True


def test_a_gate_in_extra_args_reaches_that_component_alone(tmp_path):
    """gate-apiserver-only sets the gate nowhere else."""
    config, files = load_config("gate-apiserver-only"), files_of(tmp_path)
    assert _flags(controlplane.api_server(config, files))["feature-gates"] == "MutablePVNodeAffinity=true"
    assert "feature-gates" not in _flags(controlplane.controller_manager(config, files, tmp_path))
    node = plan_nodes(config, tmp_path)[0]
    assert "MutablePVNodeAffinity" not in kubelet_configuration(node, config)["featureGates"]


def test_without_gates_no_component_is_told_of_any(tmp_path):
    """gate-off leaves the default alone, so that it also runs on a release without the gate."""
    assert "feature-gates" not in _flags(controlplane.api_server(load_config("gate-off"), files_of(tmp_path)))


def test_runtime_config_extra_args_and_kubelet_patches_go_on_top(tmp_path):
    """The document's own settings win over the project's defaults."""
    config = _document(
        tmp_path,
        """runtimeConfig: {"resource.k8s.io/v1beta1": true}
featureGates: {A: true, B: false}
kubeadmConfigPatches:
  - |
    kind: ClusterConfiguration
    apiServer: {extraArgs: {v: "6", feature-gates: "B=true"}}
    controllerManager: {extraArgs: {pvclaimbinder-sync-period: 9s}}
  - |
    kind: KubeletConfiguration
    syncFrequency: 7s
    authentication: {webhook: {enabled: false}}
    featureGates: {C: true}
""",
    )
    api = _flags(controlplane.api_server(config, files_of(tmp_path)))
    assert api["runtime-config"] == "resource.k8s.io/v1beta1=true"
    assert api["feature-gates"] == "A=true,B=true"
    assert api["v"] == "6"
    manager = _flags(controlplane.controller_manager(config, files_of(tmp_path), tmp_path))
    assert manager["pvclaimbinder-sync-period"] == "9s"
    kubelet = kubelet_configuration(plan_nodes(config, tmp_path)[0], config)
    assert kubelet["syncFrequency"] == "7s"
    assert kubelet["authentication"]["webhook"] == {"enabled": False}
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    ours = {"KubeletInUserNamespace": True, "ReloadKubeletServerCertificateFile": False}
    assert kubelet["featureGates"] == {"A": True, "B": False, "C": True, **ours}


def test_labels_a_kubelet_may_not_set_are_left_to_the_administrator(tmp_path):
    """NodeRestriction's labels are granted afterwards; topology and foreign labels are the kubelet's own."""
    config = _document(
        tmp_path,
        """nodes:
  - role: control-plane
  - role: worker
    labels:
      topology.kubernetes.io/zone: z
      provider.com/disktype.gen1: available
      node-role.kubernetes.io/storage: ""
      node.kubernetes.io/exclude-from-x: "1"
      plain: value
""",
    )
    control_plane, worker = plan_nodes(config, tmp_path)
    assert control_plane.granted_labels == {"node-role.kubernetes.io/control-plane": ""}
    assert "--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule" in control_plane.argv(tmp_path)
    assert worker.granted_labels == {"node-role.kubernetes.io/storage": ""}
    assert set(worker.labels) == set(config.nodes[1].labels) - set(worker.granted_labels)
    assert not [arg for arg in worker.argv(tmp_path) if "taints" in arg]
    assert control_plane.address != worker.address


def test_certificates_say_who_is_who(tmp_path):
    """Names and groups of the certificates are those Kubernetes' authorisers look for; keys are private."""
    config = load_config("gate-on")
    nodes = plan_nodes(config, tmp_path / "nodes")
    for node in nodes:
        node.state.mkdir(parents=True)
    write_files(config, tmp_path, nodes)

    def who(name):
        subject = x509.load_pem_x509_certificate((tmp_path / "pki" / f"{name}.crt").read_bytes()).subject
        groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        return subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value, groups[0].value if groups else None

    assert who("admin") == ("kubernetes-admin", "system:masters")
    assert who("kube-scheduler")[0] == "system:kube-scheduler"
    assert who("kube-controller-manager")[0] == "system:kube-controller-manager"
    assert who("node-worker") == ("system:node:worker", "system:nodes")
    server = x509.load_pem_x509_certificate((tmp_path / "pki" / "apiserver.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "kubernetes.default.svc"} <= set(names.get_values_for_type(x509.DNSName))
    assert "127.0.0.1" in map(str, names.get_values_for_type(x509.IPAddress))
    secret = [*(tmp_path / "pki").glob("*.key"), *tmp_path.rglob("*kubeconfig"), *tmp_path.rglob("serving.key")]
    assert len(secret) > 20
    assert all(path.stat().st_mode & 0o077 == 0 for path in secret)


def test_every_daemon_is_planned_once_and_stopped_in_order(tmp_path):
    """The API server is stopped first and etcd last; every daemon carries the mark and no proxy settings."""
    config = load_config("gate-on")
    nodes = plan_nodes(config, tmp_path / "nodes")
    spec = json.loads(json.dumps(plan(config, tmp_path, nodes, lambda name: tmp_path / name, Owner.of(1))))
    names = [daemon["name"] for daemon in spec["daemons"]]
    assert sorted(spec["stop_order"]) == sorted(names)
    assert (spec["stop_order"][0], spec["stop_order"][-1]) == ("kube-apiserver", "etcd")
    assert len([name for name in names if name.startswith("kubelet-")]) == len(config.nodes)
    known = {*names, "network", "certificates"}
    assert all(known.issuperset(daemon["needs"]) for daemon in spec["daemons"])
    assert all(daemon["env"][MARKER] == str(tmp_path) for daemon in spec["daemons"])


def test_the_environment_of_a_cluster_has_no_proxies(tmp_path, monkeypatch):
    """Proxy variables would send what goes to a node's address out of the namespace."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("KUBECONFIG", "/home/somebody/.kube/config")
    assert not {"HTTPS_PROXY", "KUBECONFIG"} & set(environment(tmp_path))


@pytest.mark.parametrize("index", [0, 249, 250, 1000])
def test_node_addresses_are_distinct_and_valid(index):
    """Addresses do not run into each other past 250 nodes."""
    from ipaddress import ip_address

    from pvaffinity.local.network import API_ADDRESS, node_address

    seen = {ip_address(node_address(number)) for number in range(index + 1)}
    assert len(seen) == index + 1
    assert ip_address(API_ADDRESS) not in seen
