"""Tokens that do not last: credential plugins and token files, over a server that checks every token."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from pvaffinity.api import Api
from pvaffinity.credentials import Tokens
from pvaffinity.errors import ApiError, UserError
from selftests.serving import Quiet, serving

V1 = "client.authentication.k8s.io/v1"
PLUGIN = """
import json, pathlib, sys
here = pathlib.Path(__file__).parent
count = len((here / "runs").read_text()) if (here / "runs").exists() else 0
with (here / "runs").open("a") as runs:
    runs.write("x")
lifetime = (here / "expires").read_text()
status = {"token": f"token-{count}", "expirationTimestamp": lifetime}
print(json.dumps({"apiVersion": sys.argv[1], "kind": "ExecCredential", "status": status}))
"""


class _Server(ThreadingHTTPServer):
    accepted: set[str]
    seen: list[str]


class _Handler(Quiet, BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        self.server.seen.append(token)
        ok = token in self.server.accepted
        answer = json.dumps({} if ok else {"kind": "Status", "reason": "Unauthorized", "message": "no"}).encode()
        self.send_response(200 if ok else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def server() -> Iterator[_Server]:
    made = _Server(("127.0.0.1", 0), _Handler)
    made.accepted, made.seen = set(), []
    with serving(made):
        yield made


def connect(server: _Server, directory: Path, user: dict[str, Any]) -> Api:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return Api.from_kubeconfig(path)


def plugin(directory: Path, seconds: float) -> dict[str, Any]:
    (directory / "plugin.py").write_text(PLUGIN)
    expires = datetime.now(UTC) + timedelta(seconds=seconds)
    (directory / "expires").write_text(expires.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return {"exec": {"apiVersion": V1, "command": sys.executable, "args": [str(directory / "plugin.py"), V1]}}


def test_a_plugin_runs_once_while_its_token_lasts(server: _Server, tmp_path: Path) -> None:
    """A token that is valid for 60 s is used for every request of that time: the plugin runs once."""
    server.accepted = {"token-0"}
    api = connect(server, tmp_path, plugin(tmp_path, 60))
    for _ in range(5):
        api.request("GET", "/")
    assert (tmp_path / "runs").read_text() == "x"


def test_a_token_is_renewed_before_it_expires(server: _Server, tmp_path: Path) -> None:
    """The next request after the token's time carries a new one, before the server would have to refuse the old one."""
    server.accepted = {"token-0", "token-1"}
    api = connect(server, tmp_path, plugin(tmp_path, 3))  # less than the margin
    api.request("GET", "/")
    plugin(tmp_path, 60)
    api.request("GET", "/")
    api.request("GET", "/")
    assert server.seen == ["token-0", "token-1", "token-1"]


def test_a_refused_token_is_renewed_once(server: _Server, tmp_path: Path) -> None:
    """A 401 makes the plugin run again and the request go out again, for requests, texts and watches; once each."""
    server.accepted = {"token-1"}
    api = connect(server, tmp_path, plugin(tmp_path, 3600))
    api.request("GET", "/")
    server.accepted = {"token-2"}
    api.text("/metrics")
    server.accepted = {"token-3"}
    assert list(api.watch("Node", seconds=1)) == []
    server.accepted = set()
    with pytest.raises(ApiError, match="401"):
        api.request("GET", "/")
    assert (tmp_path / "runs").read_text() == "xxxxx"


@pytest.mark.parametrize(
    "user,what",
    [
        ({"command": "/no/such/login", "installHint": "get it at example.com"}, "No such file"),
        ({"command": sys.executable, "args": ["-c", "import sys; sys.exit('not logged in')"]}, "not logged in"),
        ({"command": sys.executable, "args": ["-c", "print('hello')"]}, "failed to decode"),
        ({"command": sys.executable, "args": ["-c", f"print('{{}}' .replace('x', '{V1}'))"]}, "malformed response"),
    ],
)
def test_a_plugin_that_fails_is_an_error_for_the_user(
    server: _Server, tmp_path: Path, user: dict[str, Any], what: str
) -> None:
    """A plugin that is missing, fails or talks nonsense is told with its own words, before any request."""
    with pytest.raises(UserError, match=f"credential plugin failed: .*{what}") as told:
        connect(server, tmp_path, {"exec": {"apiVersion": V1, **user}})
    assert told.value.fix == user.get("installHint", told.value.fix)
    assert server.seen == []


def test_a_token_file_is_read_again(server: _Server, tmp_path: Path) -> None:
    """A token file that was replaced is noticed when the server refuses the old token."""
    server.accepted = {"one"}
    (tmp_path / "token").write_text("one\n")
    api = connect(server, tmp_path, {"tokenFile": "token"})
    api.request("GET", "/")
    server.accepted = {"two"}
    (tmp_path / "token").write_text("two\n")
    api.request("GET", "/")
    (tmp_path / "token").unlink()
    server.accepted = set()
    with pytest.raises(UserError, match=r"token file .* cannot be read"):
        api.request("GET", "/")


def test_threads_share_one_renewal() -> None:
    """Several threads whose token was refused at once have it renewed once."""
    fetched: list[str] = []

    def fetch() -> tuple[str, None]:
        fetched.append(f"t{len(fetched)}")
        return fetched[-1], None

    tokens = Tokens(fetch)
    assert tokens.current() == "t0"
    assert tokens.refused("t0")
    assert tokens.refused("t0")
    assert tokens.current() == "t1"
    assert fetched == ["t0", "t1"]
