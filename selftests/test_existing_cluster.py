"""The provider existing on a real cluster: whatever becomes of the session, not one object is left behind."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from pvaffinity import kubeconfig
from pvaffinity.api import Api
from pvaffinity.clusterconfig import load_config
from pvaffinity.identities import credentials_kubeconfig, service_account
from pvaffinity.local.preflight import try_namespaces
from pvaffinity.node_labels import SESSION
from pvaffinity.objects import Ref
from pvaffinity.paths import cache_dir
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.providers.local import LocalProvider
from pvaffinity.versions import load_versions

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(try_namespaces()[0]), reason="this machine does not allow user namespaces"),
]

ROOT = Path(__file__).resolve().parents[1]
THEIRS = """kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
featureGates: {MutablePVNodeAffinity: true}
nodes: [{role: control-plane}, {role: worker}, {role: worker}, {role: worker}, {role: worker}]
"""
CHANGING = ("events", "leases", "endpointslices")  # Kubernetes makes and drops these by itself
PLUGIN = """#!{python}
import datetime, json
until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)
status = {{"token": {token!r}, "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ")}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""


@pytest.fixture(scope="module")
def theirs(named, short):
    """A cluster without topology labels that stands for somebody else's: its kubeconfig, in an odd place."""
    (short / "theirs.yaml").write_text(THEIRS)
    spec = ClusterSpec("local", load_versions().newest, load_config(str(short / "theirs.yaml")))
    provider = LocalProvider(named)
    directory = short / secrets.token_hex(2)
    directory.mkdir()
    made = provider.create(spec, directory.name, directory, os.getpid())
    odd = short / "their: files" / "kube config"
    odd.parent.mkdir()
    shutil.copy(made.kubeconfig, odd)
    yield odd
    provider.delete(made)


def everything(path: Path) -> set[str]:
    """Every object of every kind that can be listed, by UID; nodes also with labels and annotations."""
    api, found = Api.from_kubeconfig(path), set()
    groups = api.request("GET", "/apis").body["groups"]
    for base in ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]:
        for resource in api.request("GET", base).body["resources"]:
            plural = resource["name"]
            if "/" in plural or "list" not in resource["verbs"] or plural in CHANGING:
                continue
            for item in api.request("GET", f"{base}/{plural}").body.get("items") or ():
                metadata = item["metadata"]
                more = [metadata.get("labels"), metadata.get("annotations")] if plural == "nodes" else []
                name = f"{metadata.get('namespace', '')}/{metadata['name']}"
                found.add(f"{plural} {name} {metadata.get('uid')} {json.dumps(more, sort_keys=True)}")
    return found


def command(short: Path, path: Path, *arguments: str) -> list[str]:
    base = [sys.executable, "-m", "pytest", "-q", "-rs", "--provider", "existing", "--kubeconfig", str(path)]
    return [*base, "--reports", str(short / "reports"), *arguments]


def environment(short: Path) -> dict[str, str]:
    (short / "home" / ".kube").mkdir(parents=True, exist_ok=True)
    cache = {"PVAFFINITY_CACHE": str(cache_dir())}  # before HOME is another one
    return {**os.environ, **cache, "PVAFFINITY_RUN": str(short / "run"), "HOME": str(short / "home"), "KUBECONFIG": "-"}


def run(short: Path, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(short, path, *arguments),
        cwd=ROOT,
        env=environment(short),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def labelled(path: Path) -> list[str]:
    return [node["metadata"]["name"] for node in Api.from_kubeconfig(path).list("Node", labels=SESSION)]


def test_a_cluster_without_topology_is_tested_as_far_as_it_goes(short, theirs):
    """What needs zones says so and is skipped, the rest passes, no node is touched, and nothing is left."""
    before, text = everything(theirs), theirs.read_bytes()
    tests = ["suites/test_gate_state.py", "suites/test_relaxing.py", "suites/test_stranded_pod.py"]
    done = run(short, theirs, *tests, "suites/test_rbac.py", "-k", "not rbac or test_update_on_the_one", "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not supported: no two schedulable zones in one region" in done.stdout
    assert "not supported: provider existing lacks node-labels (--allow-node-labels)" in done.stdout
    assert "not supported: the cluster is not gate-off" in done.stdout
    assert everything(theirs) == before
    assert theirs.read_bytes() == text
    assert list((short / "home" / ".kube").iterdir()) == []
    assert list((short / "run" / "clusters").iterdir()) == []


def test_free_nodes_are_labelled_for_a_session_and_restored(short, theirs):
    """With --allow-node-labels what needs zones runs, and every node's labels are afterwards what they were."""
    before = everything(theirs)
    wanted = "waiting_pod_is_scheduled or pods_outside or waiting_for_gen2 or nodes_label_is_restored"
    done = run(short, theirs, "suites", "--allow-node-labels", "-k", wanted)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    (cluster,) = json.loads((short / "reports" / "conformance.json").read_text())["clusters"]
    assert cluster["notes"]["labelled nodes"] == "worker, worker2, worker3"
    assert everything(theirs) == before


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_session_leaves_nothing(short, theirs, how):
    """Ctrl-C and SIGTERM in the middle of tests end with every object removed and every label restored."""
    before = everything(theirs)
    session = start(short, theirs)
    session.send_signal(how)
    output = session.communicate(timeout=180)[0]
    assert session.returncode == 130, output
    assert everything(theirs) == before, output


def test_what_a_killed_session_left_is_cleaned_up(short, theirs):
    """``pvaffinity clean`` removes the objects and restores the labels of a session that could not do it itself."""
    before = everything(theirs)
    session = start(short, theirs)
    os.killpg(session.pid, signal.SIGKILL)
    session.communicate(timeout=180)
    assert everything(theirs) != before
    clean = [sys.executable, "-c", "from pvaffinity.cli import main; main()", "clean"]
    done = subprocess.run(clean, env=environment(short), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert everything(theirs) == before
    assert labelled(theirs) == []


def start(short: Path, path: Path) -> subprocess.Popen[str]:
    """A session with labels that is in the middle of its tests: nodes are labelled and volumes are there."""
    tests = ["suites/test_relaxing.py", "suites/test_immutability.py", "-n", "2", "--allow-node-labels"]
    made = subprocess.Popen(
        command(short, path, *tests),
        cwd=ROOT,
        env=environment(short),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    api, deadline = Api.from_kubeconfig(path), time.monotonic() + 120
    while not (api.list("Node", labels=SESSION) and len(api.list("PersistentVolume", labels=SESSION)) > 3):
        assert made.poll() is None, made.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return made


def test_a_token_of_sixty_seconds_is_enough(short, theirs):
    """A kubeconfig whose plugin gives tokens of 60 s serves a whole session, kubectl included."""
    admin = Api.from_kubeconfig(theirs)
    who = service_account(admin, "default", "pvx-tester")
    name = "pvx-tester"
    admin.create(
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
    )
    document = yaml.safe_load(credentials_kubeconfig(who, short / "token").read_text())
    (short / "login").write_text(PLUGIN.format(python=sys.executable, token=document["users"][0]["user"].pop("token")))
    (short / "login").chmod(0o700)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./login",
        "interactiveMode": "Never",
    }
    document["users"][0]["user"] = {"exec": plugin}
    path = kubeconfig.write_private(document, short / "with a plugin")
    try:
        done = run(short, path, "suites/test_rbac.py", "suites/test_gate_state.py", "-k", "kubectl or metrics")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "3 passed" in done.stdout
    finally:
        admin.delete(Ref("ClusterRoleBinding", name))
        admin.delete(Ref("ServiceAccount", name, "default"))


def test_an_identity_without_rights_is_refused_before_anything(short, theirs):
    """Exit code 4, one line per missing right, and not one object made."""
    admin = Api.from_kubeconfig(theirs)
    who = service_account(admin, "default", "pvx-nobody")
    before = everything(theirs)
    try:
        done = run(short, credentials_kubeconfig(who, short / "nobody"), "suites/test_gate_state.py")
        assert done.returncode == 4, done.stdout + done.stderr
        assert "system:serviceaccount:default:pvx-nobody" in done.stderr
        assert "    create persistentvolumes\n" in done.stderr
        assert "Traceback" not in done.stderr
        assert everything(theirs) == before
    finally:
        admin.delete(Ref("ServiceAccount", "pvx-nobody", "default"))
