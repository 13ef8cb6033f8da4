"""A scheduler that hears of every volume two seconds late is no fault of Kubernetes: the suite must not call it one."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pvaffinity.api import Api
from pvaffinity.clusterconfig import load_config
from pvaffinity.local.binaries import ensure
from pvaffinity.local.preflight import try_namespaces
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.providers.local import LocalProvider
from pvaffinity.versions import load_versions
from selftests.lagging import late_scheduler

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(try_namespaces()[0]), reason="this machine does not allow user namespaces"),
]

ROOT = Path(__file__).resolve().parents[1]
LAG = 2.0
SUITES = ("suites/test_relaxing.py", "suites/test_disk_generations.py", "suites/test_stranded_pod.py")


@pytest.fixture(scope="module")
def late():
    """The kubeconfig of a cluster with the gate on whose scheduler is late, and the proxy that makes it so."""
    binaries, provider = ensure(load_versions().newest), LocalProvider()
    spec = ClusterSpec("local", load_versions().newest, load_config("gate-on"))
    with tempfile.TemporaryDirectory(prefix="pvl-") as short:
        directory = Path(short) / secrets.token_hex(2)
        directory.mkdir()
        made = provider.create(spec, directory.name, directory, os.getpid())
        try:
            provider.stop_component(made, "kube-scheduler")
            server = Api.from_kubeconfig(made.kubeconfig).server
            scheduler = binaries.path("kube-scheduler")
            with late_scheduler(scheduler, server, directory / "pki", Path(short), LAG) as proxy:
                yield made.kubeconfig, proxy
        finally:
            provider.delete(made)


def test_no_check_takes_staleness_for_a_broken_promise(late, tmp_path):
    """With the scheduler's view of volumes 2 s old, every check of placement holds, and the staleness is reported."""
    kubeconfig, proxy = late
    command = [sys.executable, "-m", "pytest", *SUITES, "-n", "2", "-m", "not slow", "--reports", str(tmp_path)]
    options = ["--provider", "existing", "--kubeconfig", str(kubeconfig), "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    cluster = json.loads((tmp_path / "conformance.json").read_text())["clusters"][0]
    outcomes = {test["outcome"] for behaviour in cluster["behaviours"] for test in behaviour["tests"]}
    assert outcomes <= {"passed", "xfailed", "not supported", "skipped"}, outcomes
    assert proxy.held
    assert min(cluster["staleness"]) >= LAG
