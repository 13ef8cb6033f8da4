"""The provider existing before it touches anything: which cluster, version and rights; over a stand-in server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.existing import config_for
from fixtures.options import expects
from pvaffinity import kubeconfig as kubeconfig_module
from pvaffinity.errors import UserError
from pvaffinity.providers.existing import Target
from pvaffinity.providers.existing_measure import Measured, measure, release_of
from selftests.serving import Quiet, serving

ROOT = Path(__file__).resolve().parents[1]
VERSION = json.dumps({"major": "1", "minor": "37+", "gitVersion": "v1.37.1-eks-4a2b"})


class _Server(ThreadingHTTPServer):
    """As much of an API server as measuring needs; ``denied`` says which rights it does not give."""

    version = VERSION
    status = 200
    gate = True
    denied: Callable[[dict[str, str]], bool] = staticmethod(lambda _: False)
    volumes: dict[str, Any]
    writes: list[str]


class _Handler(Quiet, BaseHTTPRequestHandler):
    server: _Server

    def _answer(self, code: int, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")

    def do_GET(self) -> None:
        failed = {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"}
        self._answer(self.server.status, self.server.version if self.server.status == 200 else failed)

    def do_POST(self) -> None:
        body = self._body()
        if "selfsubjectaccessreviews" in self.path:
            asked = body["spec"]["resourceAttributes"]
            self._answer(201, {"status": {"allowed": not self.server.denied(asked)}})
        elif "selfsubjectreviews" in self.path:
            self._answer(201, {"status": {"userInfo": {"username": "somebody"}}})
        else:
            self.server.writes.append(f"POST {body['kind']}")
            self._answer(201, body)

    def do_PATCH(self) -> None:
        self.server.writes.append("PATCH")
        affinity = self._body()["spec"]["nodeAffinity"]
        if self.server.gate:
            self._answer(200, {"spec": {"nodeAffinity": affinity}})
        else:
            cause = {"reason": "FieldValueInvalid", "field": "nodeAffinity", "message": "immutable"}
            status = {"kind": "Status", "code": 422, "reason": "Invalid", "details": {"causes": [cause]}}
            self._answer(422, status)

    def do_DELETE(self) -> None:
        self._body()
        self.server.writes.append("DELETE")
        self._answer(200, {})


@pytest.fixture
def server() -> Iterator[_Server]:
    made = _Server(("127.0.0.1", 0), _Handler)
    made.writes = []
    with serving(made):
        yield made


def kubeconfig(directory: Path, port: int, context: str = "prod") -> Path:
    path = directory / "kubeconfig"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
        "current-context": context,
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_version_and_gate_are_measured(server: _Server, tmp_path: Path) -> None:
    """The release is what the server says, and the gate what it does; the throw-away volume is deleted again."""
    target = Target(kubeconfig(tmp_path, server.server_port))
    found = measure(target)
    assert (found.release.minor, found.release.version, found.release.has_gate) == ("1.37", "1.37.1-eks-4a2b", True)
    assert (found.context, found.gate, found.note) == ("prod", "on", "")
    server.gate = False
    assert measure(target).gate == "off"
    assert server.writes == ["POST PersistentVolume", "PATCH", "DELETE"] * 2


@pytest.mark.parametrize("version,has_gate", [("1.30.4", False), ("1.52.0", True)])
def test_a_release_nobody_knows_is_taken_as_it_is(version: str, has_gate: bool) -> None:
    """A minor version that is not in versions.toml is told in a note, and named as measured."""
    release, note = release_of(json.dumps({"gitVersion": f"v{version}+k3s1"}))
    assert (release.minor, release.has_gate) == (version.rpartition(".")[0], has_gate)
    assert f"Kubernetes {version}+k3s1 is none of the releases" in note


@pytest.mark.parametrize("answer", ["<html>welcome</html>", "{}", '{"gitVersion": "latest"}', "[]"])
def test_what_is_no_api_server_is_told(answer: str) -> None:
    """A web server that is not Kubernetes is told from a version that is not known."""
    with pytest.raises(UserError, match="no Kubernetes API server"):
        release_of(answer)


def test_every_missing_right_has_a_line(server: _Server, tmp_path: Path) -> None:
    """Each right that is lacking is told in a line of its own, and nothing has been written."""
    server.denied = lambda asked: asked["resource"] == "persistentvolumes" and asked["verb"] in ("create", "patch")
    with pytest.raises(UserError, match=r"somebody .context 'prod'. lacks 3 of the rights") as told:
        measure(Target(kubeconfig(tmp_path, server.server_port)))
    assert told.value.detail.splitlines() == [
        "create persistentvolumes",
        "patch persistentvolumes",
        "patch persistentvolumes/status",
    ]
    assert server.writes == []


def test_the_right_to_label_nodes_is_needed_only_where_it_is_used(server: _Server, tmp_path: Path) -> None:
    """Without --allow-node-labels nobody needs to be allowed to change nodes."""
    server.denied = lambda asked: asked["resource"] == "nodes" and asked["verb"] == "patch"
    path = kubeconfig(tmp_path, server.server_port)
    assert measure(Target(path)).gate == "on"
    with pytest.raises(UserError) as told:
        measure(Target(path, allow_node_labels=True))
    assert told.value.detail == "patch nodes"


def test_a_server_that_does_not_know_us_is_told(server: _Server, tmp_path: Path) -> None:
    """A refused credential is told as that, with the context."""
    server.status = 401
    with pytest.raises(UserError, match=r"does not know who you are .context 'prod'."):
        measure(Target(kubeconfig(tmp_path, server.server_port)))


def test_the_expectation_is_what_was_measured() -> None:
    """Without --cluster-config the measured gate is expected; with one it must be the same."""
    found = Measured("prod", release_of(VERSION)[0], "off")
    assert config_for(found, None, expects).name == "gate-off"
    assert config_for(found, ["gate-off"], expects).name == "gate-off"
    with pytest.raises(UserError, match="MutablePVNodeAffinity is off on context 'prod', but gate-on expects"):
        config_for(found, ["gate-on"], expects)
    with pytest.raises(UserError, match="has one configuration"):
        config_for(found, ["gate-on", "gate-off"], expects)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "suites/test_gate_state.py", "--collect-only", "-q", *arguments]
    env = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"} | environment
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False, env=env)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "arguments,what",
    [
        ((), "no cluster is named"),
        (("--kubeconfig", "/no/such/file"), "no kubeconfig /no/such/file"),
        (("--kubeconfig", "{path}", "--context", "pord"), "did you mean 'prod'?"),
        (("--kubeconfig", "{path}"), "(context 'prod') does not answer"),
    ],
)
def test_what_is_wrong_is_told_in_two_lines(tmp_path: Path, arguments: tuple[str, ...], what: str) -> None:
    """One line what, one line what to do, no traceback, exit code 4, before a test is collected."""
    path = kubeconfig(tmp_path, free_port())
    result = run("--provider", "existing", *(argument.format(path=path) for argument in arguments))
    assert result.returncode == 4, result.stdout + result.stderr
    assert what in result.stderr
    assert "to fix: " in result.stderr
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    "user,what",
    [
        ({"client-certificate-data": "x", "client-key-data": "x"}, "cannot be used"),
        ({"client-certificate": "nosuch.pem", "client-key": "nosuch.pem"}, "nosuch.pem"),
        ({"token": "t"}, "does not answer"),
    ],
    ids=["no base64", "no file", "no server"],
)
def test_remedies_name_the_users_file(tmp_path: Path, user: Any, what: str) -> None:
    """What to do names the kubeconfig that the user gave, whose private copy is gone by then."""
    path = tmp_path / "my clusters"
    path.write_text(kubeconfig(tmp_path, free_port()).read_text())
    document = yaml.safe_load(path.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    path.write_text(yaml.safe_dump({**document, "users": [{"name": "u", "user": user}]}))
    with pytest.raises(UserError, match=what) as told:
        measure(Target(path))
    assert f"kubectl --kubeconfig '{path}' " in told.value.fix
    copy = kubeconfig_module.write_private(Target(path).document(), tmp_path / "copy")
    again = kubeconfig_module.read([copy])
    assert (str(again), again.kubectl) == (str(path), f"kubectl --kubeconfig '{path}'")


@pytest.mark.parametrize("option", [("--kubeconfig", "x"), ("--context", "x"), ("--allow-node-labels",)])
def test_an_option_for_an_existing_cluster_is_not_passed_over(option: tuple[str, ...]) -> None:
    """An option that would be ignored, because the provider makes its own cluster, is an error."""
    result = run("--provider", "local", *option)
    assert result.returncode == 4, result.stdout + result.stderr
    assert f"{option[0]} is for a cluster that exists" in result.stderr


@pytest.mark.parametrize("plugins", [(), ("-p", "no:pytest-kind")])
def test_a_session_is_collected_from_kubeconfig_alone(
    server: _Server, tmp_path: Path, plugins: tuple[str, ...]
) -> None:
    """KUBECONFIG names the cluster as well, with pytest-kind or without it; test ids say what was measured."""
    path = kubeconfig(tmp_path, server.server_port, "my: context")
    result = run("--provider", "existing", *plugins, KUBECONFIG=f"/no/such/file:{path}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "test_the_api_server_behaves_as_the_configuration_says[1.37-gate-on]" in result.stdout


def test_a_version_that_the_server_does_not_run_is_told(server: _Server, tmp_path: Path) -> None:
    """A --kubernetes-version is checked against the server's, not believed."""
    path = kubeconfig(tmp_path, server.server_port)
    result = run("--provider", "existing", "--kubeconfig", str(path), "--kubernetes-version", "1.36")
    assert result.returncode == 4
    assert "context 'prod' runs Kubernetes 1.37.1-eks-4a2b, not 1.36" in result.stderr
