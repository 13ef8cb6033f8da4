"""Second tries of requests, over a server that answers from a script and counts what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import urllib3
from kubernetes import client

from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.errors import ApiError
from pvaffinity.objects import Ref
from selftests.serving import Quiet, serving

PV = Ref("PersistentVolume", "v")
ETCD, PANIC = "etcdserver: request timed out", "This request caused apiserver to panic. Look in the logs for details."
NO_ROOM = "etcdserver: mvcc: database space exceeded"
FULL = (429, "too many requests, please try again later")


class _Server(ThreadingHTTPServer):
    script: list[tuple[int, str]]
    asked: int


class _Handler(Quiet, BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked += 1
        code, message = self.server.script.pop(0) if self.server.script else (200, "")
        if not code:  # no answer at all
            self.close_connection = True
            return
        answer = json.dumps({"kind": "Status", "code": code, "message": message}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815


@pytest.fixture
def server() -> Iterator[_Server]:
    made = _Server(("127.0.0.1", 0), _Handler)
    made.script, made.asked = [], 0
    with serving(made):
        yield made


@pytest.fixture
def api(server: _Server) -> Api:
    return Api(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{server.server_port}")))


def test_a_server_that_has_ended_is_not_asked_again(server: _Server, api: Api) -> None:
    """Once no answer came and its provider says that none will, a request ends at once, with that reason."""
    server.script = [(0, "")]
    with pytest.raises(urllib3.exceptions.ProtocolError):
        api.create({"kind": PV.kind, "metadata": {"name": "v"}})
    asked, api.silence.ended = server.asked, lambda: "not running: etcd"
    for request in (lambda: api.create({"kind": PV.kind, "metadata": {"name": "v"}}), lambda: api.get(PV)):
        with pytest.raises(ConnectionError, match=r"\Anot running: etcd\Z"):
            request()
    assert server.asked == asked
    api.silence.ended = lambda: ""
    api.get(PV)
    api.silence.ended = lambda: "not asked for"
    api.get(PV)


READS: dict[str, Callable[[Api], Any]] = {"get": lambda api: api.get(PV), "text": lambda api: api.text("/metrics")}
WRITES: dict[str, Callable[[Api], Any]] = {
    "create": lambda api: api.create({"kind": PV.kind, "metadata": {"name": "v"}}),
    "replace": lambda api: api.replace({"kind": PV.kind, "metadata": {"name": "v"}}),
    "patch": lambda api: api.patch(PV, {}),
}
REPEATABLE: dict[str, Callable[[Api], Any]] = {
    **READS,
    "delete": lambda api: api.delete(PV),
    "dry run": lambda api: api.patch(PV, {}, dryRun="All"),
    "may I": lambda api: api.request("POST", "/may-i", {}, repeatable=True),
}


@pytest.mark.parametrize("does", [*REPEATABLE.values(), *WRITES.values()], ids=[*REPEATABLE, *WRITES])
def test_what_the_server_had_no_time_for_is_asked_again(server: _Server, api: Api, does: Callable[[Api], Any]) -> None:
    """429 is said before anything is done, so that reads and writes alike are made again."""
    server.script = [FULL, FULL]
    does(api)
    assert server.asked == 3


no_news = pytest.mark.parametrize(
    "trouble", [(0, ""), (500, ETCD), (503, "later"), (504, "timeout")], ids=lambda t: str(t[0])
)


@no_news
@pytest.mark.parametrize("does", REPEATABLE.values(), ids=REPEATABLE)
def test_a_read_without_news_is_made_again(
    server: _Server, api: Api, does: Callable[[Api], Any], trouble: tuple[int, str]
) -> None:
    """What changes nothing, or the same when done twice, and was cut off or not answered by etcd in time."""
    server.script = [trouble]
    does(api)
    assert server.asked == 2


@no_news
@pytest.mark.parametrize("does", WRITES.values(), ids=WRITES)
def test_a_write_that_may_have_been_done_is_not_made_again(
    server: _Server, api: Api, does: Callable[[Api], Any], trouble: tuple[int, str]
) -> None:
    """Whoever wrote must know that nobody can say what became of it."""
    server.script = [trouble]
    with pytest.raises((ApiError, *TRANSPORT_ERRORS)):
        does(api)
    assert server.asked == 1


@pytest.mark.parametrize(
    "answer", [(500, PANIC), (500, NO_ROOM), (422, "invalid"), (409, "conflict"), (403, "no"), (410, "expired")]
)
@pytest.mark.parametrize("does", [*REPEATABLE.values(), *WRITES.values()], ids=[*REPEATABLE, *WRITES])
def test_an_answer_is_an_answer(server: _Server, api: Api, does: Callable[[Api], Any], answer: tuple[int, str]) -> None:
    """What the server says of the request, or does wrong by itself, is told at once and not tried away."""
    server.script = [answer]
    with pytest.raises(ApiError) as caught:
        does(api)
    assert caught.value.code == answer[0]
    assert server.asked == 1


def test_a_server_that_says_nothing_is_asked_twice(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads from an address where nobody answers waits for two time-outs, not for more."""
    asked: list[Any] = []

    def silence(*_: Any, **options: Any) -> Any:
        asked.append(options)
        raise urllib3.exceptions.ConnectTimeoutError(None, "no answer")

    monkeypatch.setattr(api, "_send", silence)
    with pytest.raises(TRANSPORT_ERRORS):
        api.text("/version", timeout=10)
    assert [options["timeout"] for options in asked] == [10, 10]
    with pytest.raises(TRANSPORT_ERRORS):
        api.once().get(PV)
    assert len(asked) == 3


@pytest.mark.parametrize("does", [*REPEATABLE.values(), *WRITES.values()], ids=[*REPEATABLE, *WRITES])
def test_whoever_measures_asks_once(server: _Server, api: Api, does: Callable[[Api], Any]) -> None:
    """A second try would be at another time than the one that was written down; the client itself stays patient."""
    server.script = [FULL]
    with pytest.raises(ApiError, match="429"):
        does(api.once())
    assert server.asked == 1
    server.script = [FULL]
    does(api)
    assert server.asked == 3


def test_a_server_that_never_has_time_is_given_up(server: _Server, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten tries the refusal is the answer."""
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    server.script = [FULL] * 50
    with pytest.raises(ApiError, match="429"):
        api.get(PV)
    assert server.asked == 10
