"""Real kind clusters: made and deleted through pytest-kind, and whatever interrupts that, nothing is left.

Needs a container engine, kind and a node image; skipped, with the reason, where there is none.
"""

import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pvaffinity import leftovers, manifests, providers
from pvaffinity.api import Api
from pvaffinity.capabilities import gate_state
from pvaffinity.clusterconfig import load_config
from pvaffinity.conditions import has_event, is_available, is_bound, is_running
from pvaffinity.engine import require
from pvaffinity.errors import UserError
from pvaffinity.kubectl import Kubectl
from pvaffinity.objects import Ref
from pvaffinity.paths import cache_dir
from pvaffinity.providers.base import Cluster, ClusterSpec, Power
from pvaffinity.versions import load_versions
from pvaffinity.waiting import until

pytestmark = pytest.mark.cluster
LABEL = "io.x-k8s.kind.cluster"
TWO_NODES = """
apiVersion: kind.x-k8s.io/v1alpha4
kind: Cluster
featureGates:
  MutablePVNodeAffinity: true
nodes:
  - role: control-plane
  - role: worker
    labels:
      topology.kubernetes.io/zone: us-east1-b
"""


@pytest.fixture(scope="module")
def kind():
    """Skips where no kind cluster can be had."""
    choice = providers.choose("auto")
    if choice.name != "kind":
        pytest.skip(f"no kind here: {choice.why}")


@pytest.fixture
def home(kind, tmp_path, monkeypatch):
    """A home directory with a kubeconfig that is none of our business; fails the test if it changes."""
    kubeconfig = tmp_path / "home" / ".kube" / "config"
    kubeconfig.parent.mkdir(parents=True)
    kubeconfig.write_text("apiVersion: v1\nkind: Config\ncurrent-context: mine\n")
    before = hashlib.sha256(kubeconfig.read_bytes()).digest()
    monkeypatch.setenv("PVAFFINITY_CACHE", str(cache_dir()))  # before HOME moves
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    yield
    assert hashlib.sha256(kubeconfig.read_bytes()).digest() == before
    assert [path.name for path in kubeconfig.parent.iterdir()] == ["config"]


@pytest.fixture
def run(tmp_path, monkeypatch, home):
    """A run directory of the test's own, and a document with two nodes."""
    path = Path(f"/tmp/pvk-{secrets.token_hex(3)}")
    monkeypatch.setenv("PVAFFINITY_RUN", str(path))
    (tmp_path / "two.yaml").write_text(TWO_NODES)
    yield path
    for leftover in leftovers.find(everything=True):
        leftovers.remove(leftover)
    subprocess.run(["rm", "-rf", path], check=True)


def spec(tmp_path, text=TWO_NODES):
    path = tmp_path / "two.yaml"
    path.write_text(text)
    return ClusterSpec("kind", load_versions().newest, load_config(str(path)))


def new(run):
    name = f"pvself-{secrets.token_hex(3)}"
    directory = run / "clusters" / name
    directory.mkdir(parents=True)
    return name, directory


def containers(name):
    return require().containers(f"{LABEL}={name}")


def test_a_cluster_from_beginning_to_end(run, tmp_path):
    """Nodes are Ready, volumes bind, pods run, a lost node says FailedMount; after deletion no container is left."""
    provider, wanted, (name, directory) = providers.load("kind"), spec(tmp_path), new(run)
    provider.check(wanted)
    cluster = provider.create(wanted, name, directory, os.getpid())
    assert Cluster.load(directory) == cluster
    assert len(containers(name)) == 2
    api = Api.from_kubeconfig(cluster.kubeconfig)
    assert gate_state(api) == "on"
    assert cluster.powers >= {Power.RESTART_KUBELET, Power.COMPONENT_LOGS, Power.KUBECTL, Power.CONTAINER_IO}

    claim = Ref("PersistentVolumeClaim", "c", "default")
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east1-b"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    api.create(manifests.persistent_volume("v", affinity, mark="t", claim_ref=claim))
    until(api, Ref("PersistentVolume", "v"), is_available)
    api.create(manifests.claim(claim, "v"))
    until(api, claim, is_bound)
    api.create(manifests.pod(Ref("Pod", "good", "default"), ["c"]))
    until(api, Ref("Pod", "good", "default"), is_running, 60)
    api.create(manifests.pod(Ref("Pod", "lost", "default"), ["c"], nodeName=f"{name}-control-plane"))
    until(api, Ref("Pod", "lost", "default"), has_event("FailedMount", "NodeAffinity check failed"), 60)

    provider.stop_kubelet(cluster, f"{name}-worker")
    provider.start_kubelet(cluster, f"{name}-worker")
    with pytest.raises(UserError, match="nowhere"):
        provider.stop_kubelet(cluster, "nowhere")
    version = Kubectl(cluster.kubectl, cluster.kubeconfig).run("version", "-o", "json").stdout
    assert version.count(f"v{cluster.version}") == 2
    provider.export_logs(cluster, tmp_path / "logs")
    assert list((tmp_path / "logs").rglob("kubelet.log"))

    provider.delete(cluster)
    provider.delete(cluster)
    assert not containers(name)
    assert not directory.exists()


def test_a_busy_port_shows_why_and_leaves_nothing(run, tmp_path):
    """The engine's own words are in the error, the nodes' logs are kept, and the container is gone."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        wanted = spec(tmp_path, TWO_NODES + f"networking:\n  apiServerPort: {port}\n")
        name, directory = new(run)
        with pytest.raises(UserError, match="address already in use") as caught:
            providers.load("kind").create(wanted, name, directory, os.getpid())
    assert "end whatever uses that port" in caught.value.fix
    assert "Preparing nodes" in caught.value.detail
    assert (run / "failed" / name / "kind.log").exists()
    assert not containers(name)
    assert not directory.exists()


def test_a_name_that_is_taken_is_refused_and_its_owner_left_alone(run, tmp_path):
    """A cluster of the user's with the very name is told, and neither the failure nor clean touches it."""
    name, directory = new(run)
    decoy = _decoy(name, suffix="")
    try:
        with pytest.raises(UserError, match=f"there is a kind cluster named {name} already"):
            providers.load("kind").create(spec(tmp_path), name, directory, os.getpid())
        os.utime(directory, (0, 0))
        for leftover in leftovers.find(everything=True):
            leftovers.remove(leftover)
        assert not directory.exists()
        assert containers(name) == (decoy,)
    finally:
        require().run("rm", "--force", decoy)


CREATE = """
import os, pathlib, signal, sys
from pvaffinity import providers
from pvaffinity.clusterconfig import load_config
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.versions import load_versions
def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
name, directory, config = sys.argv[1:]
spec = ClusterSpec("kind", load_versions().newest, load_config(config))
providers.load("kind").create(spec, name, pathlib.Path(directory), os.getpid(), lambda line: print(line, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_an_interrupted_creation_leaves_no_container(run, tmp_path, number):
    """Whatever ends the session while kind works, kind's containers go; somebody else's stay."""
    name, directory = new(run)
    decoy = _decoy(name)
    command = [sys.executable, "-c", CREATE, name, str(directory), str(tmp_path / "two.yaml")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL, process_group=0)
    try:
        with process.stdout as lines:
            assert any("Preparing nodes" in line for line in lines)
        _within(60, lambda: containers(name))
        os.killpg(process.pid, number)
        process.wait(180)
        _within(180, lambda: not containers(name))
        for leftover in leftovers.find():
            assert leftover.directory == directory
            leftovers.remove(leftover)
        assert not directory.exists()
        assert containers(f"{name}-mine") == (decoy,)
    finally:
        process.kill()
        require().run("rm", "--force", decoy)


def _decoy(name, suffix="-mine"):
    """A container that looks like a node of a cluster with a similar name."""
    image = next(iter(require().run("image", "ls", "--quiet").split()))
    label = f"--label={LABEL}={name}{suffix}"
    return require().run("run", "--detach", label, "--entrypoint=sleep", image, "600")


def _within(seconds, condition):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
