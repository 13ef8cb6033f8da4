"""A session in which something failed exports the logs of that cluster before it deletes it."""

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PLUGIN = """
import os
from pathlib import Path
from fixtures import clusters
from pvaffinity import providers
from pvaffinity.providers.base import Cluster, Power

class Maker:
    def check(self, spec, progress): ...
    def create(self, spec, name, directory, owner, progress):
        logs = directory if os.environ["LOGS"] else None
        made = Cluster(name, "local", "1.37.2", spec.config.name, directory, directory / "k", None,
            frozenset({Power.COMPONENT_LOGS}), logs)
        return made
    def delete(self, cluster, progress=None):
        print(f"deleting {cluster.config}")
    def disown(self, cluster): ...
    def export_logs(self, cluster, destination):
        print(f"exporting {cluster.config}")
        destination.mkdir(parents=True)
        (destination / "kubelet.log").write_text("started")

class UnderTest:
    def __init__(self, spec, cluster, provider, lasting):
        self.spec, self.cluster, self.admin = spec, cluster, None

providers.load = lambda *_, **__: Maker()
clusters.ClusterUnderTest = UnderTest
clusters.gate_state = lambda _: "on"
"""

TESTS = """
import os, pytest, signal

@pytest.fixture
def teardown():
    yield
    assert os.environ["FAIL"] != "teardown"

@pytest.mark.cluster("gate-on")
def test_on(cluster, teardown):
    assert not os.environ["FAIL"].startswith("call")

@pytest.mark.cluster("gate-on")
def test_again(cluster):
    if os.environ["FAIL"] == "call-and-interrupt":
        os.kill(os.getpid(), signal.SIGTERM)

@pytest.mark.cluster("gate-off")
def test_off(cluster):
    pass
"""


@pytest.fixture
def session(tmp_path):
    """Runs three tests on two clusters that are made of nothing; returns what was said and what was saved."""
    run = Path(f"/tmp/pvl-{secrets.token_hex(3)}")
    plugins = ["fixtures.interrupts", "fixtures.existing", "fixtures.options", "fixtures.clusters", "fixtures.evidence"]
    (tmp_path / "conftest.py").write_text(f"{PLUGIN}\npytest_plugins = {plugins}\n")
    (tmp_path / "test_it.py").write_text(TESTS)

    def start(fail, *more, logs=""):
        command = [sys.executable, "-m", "pytest", "-pno:cacheprovider", "test_it.py"]
        environment = {**os.environ, "PVAFFINITY_RUN": str(run), "FAIL": fail, "LOGS": logs}
        environment["PYTHONPATH"] = str(ROOT)
        result = subprocess.run(
            [*command, "--provider=local", "--reports=reports", f"--rootdir={tmp_path}", *more],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        said = result.stdout + result.stderr
        assert said.count("deleting gate-on") == 1, said
        evidence = tmp_path / "reports" / "evidence"
        return said, [str(path.relative_to(evidence).parent) for path in sorted(evidence.glob("*/pv-*/kubelet.log"))]

    yield start
    shutil.rmtree(run, ignore_errors=True)


@pytest.mark.parametrize("fail,more", [("call", []), ("call", ["-n2"]), ("teardown", []), ("call", ["-n1", "-x"])])
def test_logs_are_exported_before_the_cluster_is_deleted(session, fail, more):
    """Whatever failed, in whichever worker, the logs of that cluster and of no other are in the reports, as is said."""
    said, saved = session(fail, *more)
    assert len(saved) == 1, said
    assert saved[0].startswith("1.37-gate-on/pv-137-gate-on-"), said
    assert said.count(f": reports/evidence/{saved[0]}\n") == 1
    assert said.index("exporting gate-on") < said.index("deleting gate-on")


def test_where_nothing_failed_or_the_logs_are_there_already_none_are_exported(session):
    """A green session exports nothing; nor does one whose tests have the component logs among their own evidence."""
    assert session("nothing")[1] == []
    assert session("call", logs="readable")[1] == []


def test_an_interruption_is_not_kept_waiting_for_logs(session):
    """After SIGTERM the clusters are deleted at once: whoever sent it may not wait for long."""
    said, saved = session("call-and-interrupt")
    assert "KeyboardInterrupt" in said
    assert saved == []
