"""Components of a real kind cluster, stopped and started with other flags; skipped where no kind cluster can be had."""

import os
import secrets
import shutil
import time
from pathlib import Path

import pytest

from pvaffinity import providers
from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.capabilities import gate_state
from pvaffinity.clusterconfig import GATE, load_config
from pvaffinity.engine import require
from pvaffinity.errors import UserError
from pvaffinity.paths import run_dir
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.topology import Topology
from pvaffinity.usable import await_usable
from pvaffinity.versions import load_versions

pytestmark = pytest.mark.cluster

TWO_NODES = f"""
apiVersion: kind.x-k8s.io/v1alpha4
kind: Cluster
featureGates: {{{GATE}: true}}
nodes: [{{role: control-plane}}, {{role: worker}}]
"""
MANIFESTS = "/etc/kubernetes/manifests"


@pytest.fixture
def made(tmp_path):
    choice = providers.choose("auto")
    if choice.name != "kind":
        pytest.skip(f"no kind here: {choice.why}")
    (tmp_path / "two.yaml").write_text(TWO_NODES)
    name = f"pvself-{secrets.token_hex(3)}"
    directory: Path = run_dir() / "clusters" / name
    directory.mkdir(parents=True)
    provider = providers.load("kind")
    spec = ClusterSpec("kind", load_versions().newest, load_config(str(tmp_path / "two.yaml")))
    cluster = provider.create(spec, name, directory, os.getpid())
    yield provider, cluster
    provider.delete(cluster)
    shutil.rmtree(directory, ignore_errors=True)


def test_components_run_with_other_flags_and_are_restored_byte_for_byte(made):
    """The new API server answers when its start returns; a wrong flag is told in a line; then all is as it was."""
    provider, cluster = made
    api, node = Api.from_kubeconfig(cluster.kubeconfig), f"{cluster.name}-control-plane"
    nodes = Topology.read(api).schedulable

    def manifests():
        return require().run("exec", node, "sh", "-c", f"cd {MANIFESTS}; for f in *; do ls -l $f; cat $f; done")

    before = manifests()
    for gate, state in (("false", "off"), ("true", "on")):
        provider.start_component(cluster, "kube-apiserver", {"feature-gates": f"{GATE}={gate}"})
        assert gate_state(api) == state
    provider.stop_component(cluster, "kube-apiserver")
    with pytest.raises(TRANSPORT_ERRORS):
        api.text("/readyz", timeout=2)
    provider.start_component(cluster, "kube-apiserver")
    for flags, why in (({"no-such": "1"}, "unknown flag: --no-such"), ({"feature-gates": "X=true"}, "gate: X")):
        with pytest.raises(UserError) as caught:
            provider.start_component(cluster, "kube-scheduler", flags)
        assert caught.value.what.startswith("kube-scheduler exited: ")
        assert caught.value.what.endswith(why)
    provider.start_component(cluster, "kube-scheduler")
    for component in ("kube-scheduler", "kube-controller-manager", "kube-scheduler", "kube-apiserver") * 2:
        started = time.monotonic()
        provider.stop_component(cluster, component)
        provider.start_component(cluster, component)  # at once, and again: no kubelet takes it for a crash
        assert time.monotonic() - started < 60, component
    assert manifests() == before
    await_usable(api, nodes)
