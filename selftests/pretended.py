"""Sessions of checks with all of the project's plugins, on clusters that are made of nothing."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CONFTEST = """
import os
from types import SimpleNamespace
from fixtures import clusters, tries
from pvaffinity import providers
from pvaffinity.errors import UserError
from pvaffinity.providers.base import Cluster

class Maker:
    def check(self, spec, progress): ...
    def create(self, spec, name, directory, owner, progress):
        if os.environ.get("NO_CLUSTER"):
            raise UserError("there is no room", "make some")
        return Cluster(name, "local", "1.37.2", spec.config.name, directory, directory / "k", None, frozenset())
    def delete(self, cluster, progress=None): ...
    def export_logs(self, cluster, destination): ...
    def ailing(self, cluster, *of):
        return os.environ.get("DEAD", "")

class UnderTest:
    def __init__(self, spec, cluster, provider, lasting):
        self.spec, self.cluster, self.admin, self.lasting = spec, cluster, None, lasting
        self.topology = SimpleNamespace(schedulable=())

def await_usable(api, nodes):
    print("is it usable?")
    assert not os.environ.get("UNUSABLE"), "pod pv-usable/0 did not run within 180 s"

providers.load = lambda *_, **__: Maker()
providers.demand = lambda *_, **__: None
clusters.ClusterUnderTest = tries.ClusterUnderTest = UnderTest
clusters.gate_state = lambda _: "on"
tries.await_usable = await_usable
"""

HEAD = """
import os, pytest, signal, time
from pvaffinity.judging import NotJudgedError
pytestmark = [pytest.mark.behaviour("relaxing"), pytest.mark.cluster("gate-on")]
"""


class Session:
    """Runs ``test_it.py`` of a directory in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run = Path(f"/tmp/pvp-{secrets.token_hex(3)}")
        names: dict[str, list[str]] = {}
        exec((ROOT / "conftest.py").read_text(), names)
        (directory / "pytest.ini").write_text("[pytest]\nxfail_strict = true\n")
        self.conftest("")
        self._plugins = names["pytest_plugins"]

    def conftest(self, more: str) -> None:
        """What else the session's conftest does, such as a plugin that dies."""
        self._more = more

    def command(self, tests: str, *options: str) -> list[str]:
        """The command line for these tests; a text without them means the last ones again."""
        if tests:
            (self.directory / "test_it.py").write_text(HEAD + tests)
        (self.directory / "conftest.py").write_text(f"{CONFTEST}\n{self._more}\npytest_plugins = {self._plugins}\n")
        where = [f"--rootdir={self.directory}", "--cluster-config=gate-on", "--provider=local", "--full-report"]
        return [sys.executable, "-m", "pytest", "-pno:cacheprovider", "test_it.py", *where, *options]

    def environment(self, **environment: str) -> dict[str, str]:
        """The process's environment: a run directory of its own, and no npx for Allure's HTML."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PVAFFINITY_"))}
        return {**clean, "PVAFFINITY_RUN": str(self.run), "PYTHONPATH": f"{ROOT}/src:{ROOT}", "PATH": "", **environment}

    def start(self, tests: str, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Start it in a process group of its own."""
        return subprocess.Popen(
            self.command(tests, *options), cwd=self.directory, env=self.environment(**environment), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0,
        )  # fmt: skip

    def __call__(self, tests: str, *options: str, **environment: str) -> tuple[int, str]:
        """Run it to its end: exit code and what it said."""
        process = self.start(tests, *options, **environment)
        said = process.communicate(timeout=240)[0]
        return process.returncode, said

    def found(self, *fields: str) -> dict[str, object]:
        """What conformance.json says of each check."""
        data = json.loads((self.directory / "reports/conformance.json").read_text())
        tests = [test for each in data["clusters"][0]["behaviours"] for test in each["tests"]]
        picked = {t["id"].partition("::")[2].partition("[")[0]: [t[field] for field in fields] for t in tests}
        return {name: values[0] if len(fields) == 1 else tuple(values) for name, values in picked.items()}

    def close(self) -> None:
        """Remove what it left."""
        shutil.rmtree(self.run, ignore_errors=True)
