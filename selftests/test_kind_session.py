"""A session on kind, interrupted: nothing of it is left, and the user's own clusters are.

Needs a container engine, kind and a node image; skipped, with the reason, where there is none.
"""

import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pvaffinity import leftovers, providers
from pvaffinity.engine import require

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[1]
LABEL = "io.x-k8s.kind.cluster"
ONE_NODE = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nfeatureGates: {{MutablePVNodeAffinity: {gate}}}\n"


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Starts the suite with two workers and two clusters, whose names begin as the user's own does."""
    choice = providers.choose("auto")
    if choice.name != "kind":
        pytest.skip(f"no kind here: {choice.why}")
    prefix, run = f"pvs-{secrets.token_hex(3)}", Path(f"/tmp/pvs-{secrets.token_hex(3)}")
    command = [sys.executable, "-m", "pytest", "suites/test_gate_state.py", "suites/test_immutability.py", "-v"]
    command += ["-n", "2", "-p", "no:cacheprovider", "--provider", "kind", "--cluster-name", prefix]
    command += ["--reports", str(tmp_path / "reports")]
    for config, gate in (("one", "true"), ("other", "false")):
        (tmp_path / f"{config}.yaml").write_text(ONE_NODE.format(gate=gate))
        command += ["--cluster-config", str(tmp_path / f"{config}.yaml")]
    mine = f"{prefix}-137-one"  # what a user may call a cluster of the same kind
    image = next(iter(require().run("image", "ls", "--quiet").split()))
    require().run("run", "--detach", f"--label={LABEL}={mine}", f"--name={mine}", "--entrypoint=sleep", image, "600")
    monkeypatch.setenv("PVAFFINITY_RUN", str(run))
    started = Session(command, prefix, mine, run)
    yield started
    started.close()
    require().run("rm", "--force", mine)
    for leftover in leftovers.find(everything=True):
        leftovers.remove(leftover)
    shutil.rmtree(run, ignore_errors=True)


class Session:
    """A running session, and the lines it has printed."""

    def __init__(self, command, prefix, mine, run):
        self.prefix, self.mine, self.run = prefix, mine, run
        self.lines = []
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True)
        self._reader.start()

    def wait_for(self, text, times, seconds=300):
        """Wait until so many lines have the text."""
        deadline = time.monotonic() + seconds
        while sum(text in line for line in list(self.lines)) < times:
            assert time.monotonic() < deadline, "".join(self.lines)
            assert self.process.poll() is None, "".join(self.lines)
            time.sleep(0.05)

    def containers(self):
        """Names of this session's containers, and of the user's."""
        names = require().run("ps", "--all", "--format={{.Names}}", f"--filter=name={self.prefix}").split()
        return sorted(names)

    def close(self):
        """End it the hard way, if it has not ended."""
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        self.process.stdout.close()

    def end(self, number):
        """Send a signal, as a terminal or a CI system does, and return what it printed."""
        self.process.send_signal(number)
        self.process.wait(240)
        self._reader.join(10)
        return "".join(self.lines)


@pytest.mark.parametrize(
    "when,number",
    [
        ("creation", signal.SIGTERM),
        ("tests", signal.SIGINT),
        pytest.param("creation", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("tests", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_session_leaves_the_users_cluster_alone(session, when, number):
    """Ctrl-C or SIGTERM while two workers make clusters or run tests: only the user's cluster is there afterwards."""
    if when == "creation":
        session.wait_for("kind: Preparing nodes", 2)
    else:
        session.wait_for("PASSED", 4)
    assert len(session.containers()) > 1

    said = session.end(number)

    assert session.containers() == [session.mine], said
    assert not list((session.run / "clusters").iterdir()), said
    assert session.process.returncode == 130, said
