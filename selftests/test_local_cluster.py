"""The local provider with the real binaries: usable when create returns, truthful, and gone afterwards."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pvaffinity import leftovers
from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import UserError
from pvaffinity.local import control
from pvaffinity.local.preflight import try_namespaces
from pvaffinity.providers.base import ClusterSpec, Power
from pvaffinity.providers.local import LocalProvider
from pvaffinity.versions import load_versions

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(try_namespaces()[0]), reason="this machine does not allow user namespaces"),
]

SMALL = """kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
featureGates: {MutablePVNodeAffinity: true}
nodes:
  - role: control-plane
  - role: worker
    labels: {topology.kubernetes.io/zone: a, node-role.kubernetes.io/storage: ""}
"""
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
)

CREATE = """
import os, sys, time
from pathlib import Path
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.providers.local import LocalProvider
from pvaffinity.clusterconfig import load_config
from pvaffinity.versions import load_versions
version, config, directory, binaries = sys.argv[1:]
spec = ClusterSpec("local", load_versions().find(version), load_config(config))
LocalProvider(Path(binaries) if binaries else None).create(spec, Path(directory).name, Path(directory), os.getpid())
print("created", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def config(short):
    path = short / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def spec(config):
    return ClusterSpec("local", load_versions().newest, load_config(str(config)))


@pytest.fixture(scope="module")
def made(named, spec, short):
    before = {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}
    provider = LocalProvider(named)
    provider.check(spec)
    directory = short / secrets.token_hex(2)
    directory.mkdir()
    created = provider.create(spec, directory.name, directory, os.getpid())
    yield created
    started = time.monotonic()
    provider.delete(created)
    took = time.monotonic() - started
    provider.delete(created)  # deleting twice is no error
    assert leftovers.processes_of(directory) == ()
    assert not directory.exists()
    assert before == {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}
    assert took < 60  # seconds; 0.3 on a quiet machine


def _kubectl(made, *args, stdin=None):
    command = [str(made.kubectl), "--kubeconfig", str(made.kubeconfig), *args]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _nodes(made):
    return {n["metadata"]["name"]: n for n in json.loads(_kubectl(made, "get", "nodes", "-o", "json"))["items"]}


def test_a_created_cluster_is_usable_at_once(made):
    """All nodes are Ready, have their labels and only their own taints, and the default ServiceAccount exists."""
    nodes = _nodes(made)
    assert set(nodes) == {"control-plane", "worker"}
    for node in nodes.values():
        assert [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"] == ["True"]
    assert [t["key"] for t in nodes["control-plane"]["spec"]["taints"]] == ["node-role.kubernetes.io/control-plane"]
    assert "taints" not in nodes["worker"]["spec"]
    labels = nodes["worker"]["metadata"]["labels"]
    assert labels["topology.kubernetes.io/zone"] == "a"
    assert labels["node-role.kubernetes.io/storage"] == ""
    _kubectl(made, "get", "serviceaccount", "default")


POD = """{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "writer"}, "spec": {
 "containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", "echo hello; sleep infinity"],
  "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
 "volumes": [{"name": "v", "hostPath": {"path": "/mnt/pvaffinity-selftest", "type": "DirectoryOrCreate"}}]}}"""


def test_a_pod_runs_logs_and_keeps_off_the_host(made):
    """The pod's log can be read; hostPath DirectoryOrCreate makes a directory of the node's, not of this machine's."""
    _kubectl(made, "create", "-f", "-", stdin=POD)
    _kubectl(made, "wait", "--for=condition=Ready", "pod/writer", "--timeout=120s")
    assert _kubectl(made, "logs", "writer") == "hello\n"
    assert not Path("/mnt/pvaffinity-selftest").exists()
    assert (made.directory / "nodes/worker/hostfs/mnt/pvaffinity-selftest").is_dir()


def test_a_kubelet_is_stopped_and_started_with_its_state_kept(made, named):
    """After a kubelet's restart the pod is the same: UID, container, no restart; the node is Ready again."""
    _kubectl(made, "run", "still", "--image=busybox")
    _kubectl(made, "wait", "--for=condition=Ready", "pod/still", "--timeout=120s")
    before = json.loads(_kubectl(made, "get", "pod", "still", "-o", "json"))
    provider = LocalProvider(named)
    provider.stop_kubelet(made, "worker")
    daemons = control.ask(made.directory, "status")["daemons"]
    assert not daemons["kubelet-worker"]["running"]
    assert daemons["kubelet-control-plane"]["running"]
    provider.start_kubelet(made, "worker")
    _kubectl(made, "annotate", "pod", "still", "touched=yes")
    _kubectl(made, "wait", "--for=condition=Ready", "node/worker", "pod/still", "--timeout=120s")
    after = json.loads(_kubectl(made, "get", "pod", "still", "-o", "json"))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    with pytest.raises(UserError, match="no node 'ghost'"):
        provider.stop_kubelet(made, "ghost")


def test_a_component_is_stopped_and_started_with_other_flags(made, named):
    """The API server answers by its new flags as soon as its start returns, at the same address; then as before."""
    from pvaffinity.api import TRANSPORT_ERRORS, Api
    from pvaffinity.capabilities import gate_state

    provider, admin = LocalProvider(named), Api.from_kubeconfig(made.kubeconfig)
    assert Power.COMPONENT_FLAGS in made.powers
    provider.start_component(made, "kube-apiserver", {"feature-gates": "MutablePVNodeAffinity=false"})
    assert gate_state(admin) == "off"
    provider.stop_component(made, "kube-apiserver")
    with pytest.raises(TRANSPORT_ERRORS):
        admin.text("/readyz", timeout=2)
    with pytest.raises(UserError) as caught:
        provider.start_component(made, "kube-apiserver", {"feature-gates": "Nonsense=true"})
    assert caught.value.what == "kube-apiserver exited (1): unrecognized feature gate: Nonsense"
    assert "command failed" in caught.value.detail
    provider.start_component(made, "kube-apiserver")
    assert gate_state(admin) == "on"
    for component in ("kube-scheduler", "kube-controller-manager"):
        provider.stop_component(made, component)
        assert not control.ask(made.directory, "status")["daemons"][component]["running"]
        provider.start_component(made, component, {"v": "3"})
        provider.start_component(made, component)
    with pytest.raises(UserError, match="no component 'etcd'"):
        provider.stop_component(made, "etcd")


def test_users_get_certificates_through_the_signer(made):
    """The controller manager signs for kubernetes.io/kube-apiserver-client, and the API server trusts it."""
    from pvaffinity.api import Api
    from pvaffinity.identities import can_i, x509

    admin = Api.from_kubeconfig(made.kubeconfig)
    somebody = x509(admin, "somebody")
    assert not can_i(somebody, "patch", "persistentvolumes")
    assert can_i(admin, "patch", "persistentvolumes")


def test_logs_are_exported(made, named, tmp_path):
    """Every component's log, and the pods' logs, are copied."""
    LocalProvider(named).export_logs(made, tmp_path / "logs")
    names = {path.name for path in (tmp_path / "logs").glob("*.log")}
    assert {"etcd.log", "kube-apiserver.log", "kubelet-worker.log", "supervisor.log"} <= names


@pytest.mark.parametrize("moment", ["created", "starting"])
def test_nothing_survives_the_kill_of_the_owner(named, spec, short, moment):
    """SIGKILL of the owner, when the cluster runs or while it starts: soon nothing is left."""
    directory = short / f"kill-{moment}"
    directory.mkdir()
    arguments = [spec.release.minor, str(spec.config.path), str(directory), str(named or "")]
    owner = subprocess.Popen([sys.executable, "-c", CREATE, *arguments], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    if moment == "created":
        assert owner.stdout.readline() == b"created\n"
    else:
        log = directory / "logs" / "kube-apiserver.log"
        while not (log.exists() and log.stat().st_size):
            assert owner.poll() is None
            time.sleep(0.02)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 60
    while (leftovers.processes_of(directory) or directory.exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert leftovers.processes_of(directory) == ()
    assert not directory.exists()


def test_a_misspelt_gate_is_one_line_what_and_one_line_what_to_do(named, short, tmp_path):
    """A start that cannot work ends at once, says why and where, and leaves nothing."""
    path = tmp_path / "typo.yaml"
    path.write_text(SMALL.replace("MutablePVNodeAffinity", "CrossNamespaceVolumeDataSorce"))
    spec = ClusterSpec("local", load_versions().newest, load_config(str(path)))
    directory = short / "typo"
    directory.mkdir()
    with pytest.raises(UserError) as caught:
        LocalProvider(named).create(spec, "typo", directory, os.getpid())
    assert caught.value.what == "kube-apiserver exited (1): unrecognized feature gate: CrossNamespaceVolumeDataSorce"
    assert caught.value.fix == (
        f"correct featureGates.CrossNamespaceVolumeDataSorce in {path}; did you mean CrossNamespaceVolumeDataSource?"
    )
    assert leftovers.processes_of(directory) == ()
    assert not directory.exists()
