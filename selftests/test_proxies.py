"""Which proxy requests go through: Go's rule, in every client that the project has."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pvaffinity import identities, kubeconfig, proxies, web
from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.local.bincache import Cache
from pvaffinity.local.readiness import Readiness
from selftests.mirrored import Mirror, download
from selftests.serving import Quiet, serving

DEAD = "http://127.0.0.1:9"
ELSEWHERE = "203.0.113.7"  # of the addresses for documentation (RFC 5737): nobody answers there
VARIABLES = [each for name in ("https_proxy", "http_proxy", "all_proxy") for each in (name, name.upper())]


class _Recorder(ThreadingHTTPServer):
    asked: list[tuple[str, str]]
    """Of each request: what it asked for, and its Proxy-Authorization."""


class _Handler(Quiet, BaseHTTPRequestHandler):
    """An API server and a proxy in one: all it is asked is answered alike, but for what asks for a redirect."""

    server: _Recorder

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
        moved = self.path.startswith("/moved/")
        body = json.dumps({"items": [], "metadata": {"resourceVersion": "1"}}).encode()
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", f"http://{self.path.removeprefix('/moved/')}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
        self.send_error(502)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def _recorder() -> _Recorder:
    made = _Recorder(("127.0.0.1", 0), _Handler)
    made.asked = []
    return made


@pytest.fixture
def server() -> Iterator[_Recorder]:
    with serving(_recorder()) as made:
        yield made


@pytest.fixture
def proxy() -> Iterator[_Recorder]:
    with serving(_recorder()) as made:
        yield made


def _address(server: _Recorder) -> str:
    return f"127.0.0.1:{server.server_port}"


def _api(tmp_path: Path, server: str, **cluster: str) -> Api:
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }
    return Api.from_kubeconfig(kubeconfig.write_private(document, tmp_path / "kubeconfig"))


@pytest.mark.parametrize(
    ("url", "no_proxy", "proxied"),
    [
        ("https://api.example", "", True),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://127.8.9.10", "", False),
        ("https://[::1]:6443", "", False),
        ("https://[::ffff:127.0.0.1]", "", False),
        ("https://localhost.example", "", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://11.1.2.3:6443", "10.0.0.0/8", True),
        ("https://[fd00::1]", "10.0.0.0/8, fd00::/8", False),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", False),
        ("https://10.1.2.3", "10.1.2.3:6443", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]", "fd00::1", False),
        ("https://example", "example", False),
        ("https://a.example", "example", False),
        ("https://an-example", "example", True),
        ("https://example", ".example", True),
        ("https://A.Example", ".eXample", False),
        ("https://a.example", "*.example", False),
        ("https://example", "*.example", True),
        ("https://a.example", "example:443", False),
        ("https://a.example:6443", "example:443", True),
        ("https://a.example", "elsewhere,*", False),
        ("https://a.example", "*example, :443, 10.0.0.0/99, ,", True),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(url: str, no_proxy: str, proxied: bool) -> None:
    """Loopback is never proxied; ranges, ports, leading dots and stars of NO_PROXY count as for kubectl."""
    environment = {"HTTPS_PROXY": "http://proxy.example:3128", "no_proxy": no_proxy}

    assert proxies.from_environment(url, environment) == ("http://proxy.example:3128" if proxied else None)


def test_which_variable_counts() -> None:
    """The scheme's own comes first, capitals before small letters; ALL_PROXY is for downloads only; http is implied."""
    both = {"HTTPS_PROXY": "one:1", "https_proxy": "two:2", "HTTP_PROXY": "three:3", "ALL_PROXY": "socks5://four:4"}

    assert proxies.from_environment("https://a.example", both) == "http://one:1"
    assert proxies.from_environment("http://a.example", both) == "http://three:3"
    only = {"ALL_PROXY": "socks5://four:4", "https_proxy": ""}
    assert proxies.from_environment("https://a.example", only) is None
    assert proxies.from_environment("https://a.example", only, any_scheme=True) == "socks5://four:4"


@pytest.mark.parametrize("name", VARIABLES)
def test_no_client_asks_a_proxy_for_this_host(
    name: str,
    server: _Recorder,
    tmp_path: Path,
    mirror: Mirror,
    empty_cache: Cache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """API client, watch, identities, health checks and downloads of this host work behind any dead proxy."""
    monkeypatch.setenv(name, DEAD)
    api = _api(tmp_path, f"http://{_address(server)}")

    assert api.list("PersistentVolume") == []
    assert list(api.watch("PersistentVolume", seconds=1)) == []
    assert identities._client(api, "somebody", token="t").list("PersistentVolume") == []
    assert Readiness("tcp", _address(server)).seen()
    assert web.client(5).get(f"http://{_address(server)}/").status_code == 200
    assert download(empty_cache).kubectl.exists()


def test_https_to_this_host_asks_no_proxy(proxy: _Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TLS connection to a loopback address is made there and nowhere else."""
    for name in VARIABLES:
        monkeypatch.setenv(name, f"http://{_address(proxy)}")
    with socket.create_server(("127.0.0.1", 0)) as api_server:
        api_server.settimeout(0)
        address = f"https://127.0.0.1:{api_server.getsockname()[1]}"
        with pytest.raises(TRANSPORT_ERRORS):
            _api(tmp_path, address).once().request("GET", "/version", timeout=0.2)
        api_server.accept()[0].close()

    assert proxy.asked == []


@pytest.mark.parametrize("name", [n for n in VARIABLES if "all" not in n.lower()])
def test_a_server_elsewhere_is_asked_through_the_proxy(
    name: str, proxy: _Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheme's variable is heeded for any other host, with name and password, by every identity alike."""
    scheme = name.lower().removesuffix("_proxy")
    monkeypatch.setenv(name, f"http://me:p%40ss@{_address(proxy)}")
    api = _api(tmp_path, f"{scheme}://{ELSEWHERE}:6443").once()

    for each in (api, identities._client(api, "somebody", token="t").once()):
        if scheme == "http":
            assert each.request("GET", "/version").code == 200
        else:
            with pytest.raises(TRANSPORT_ERRORS):  # the proxy refuses to connect
                each.request("GET", "/version")

    asked = f"http://{ELSEWHERE}:6443/version" if scheme == "http" else f"{ELSEWHERE}:6443"
    assert proxy.asked == [(asked, "Basic " + base64.b64encode(b"me:p@ss").decode())] * 2


def test_a_kubeconfigs_proxy_counts_for_any_host(
    server: _Recorder, proxy: _Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy-url is used whatever the environment says, for loopback too, also by kubectl for other identities."""
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    monkeypatch.setenv("NO_PROXY", "*")
    api = _api(tmp_path, f"http://{_address(server)}", **{"proxy-url": f"http://{_address(proxy)}"})

    assert api.list("PersistentVolume") == []
    assert (len(proxy.asked), len(server.asked)) == (1, 0)
    written = kubeconfig.read([identities.credentials_kubeconfig(api, tmp_path / "theirs")]).only()
    assert written["clusters"][0]["cluster"]["proxy-url"] == f"http://{_address(proxy)}"


def test_a_kubeconfigs_proxy_may_be_socks(tmp_path: Path) -> None:
    """A SOCKS proxy, such as that of ``ssh -D``, is spoken to in its own language."""
    with socket.create_server(("127.0.0.1", 0)) as socks:
        socks.settimeout(0)
        url = f"socks5://127.0.0.1:{socks.getsockname()[1]}"
        with pytest.raises(TRANSPORT_ERRORS):
            _api(tmp_path, f"http://{ELSEWHERE}", **{"proxy-url": url}).once().request("GET", "/", timeout=0.3)
        connection = socks.accept()[0]
        with connection:
            assert connection.recv(1) == b"\x05"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_redirect_goes_the_way_of_its_own_host(
    name: str, server: _Recorder, proxy: _Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a mirror on this host sends elsewhere is fetched through the proxy, the mirror itself is not."""
    monkeypatch.setenv(name, f"http://{_address(proxy)}")

    with web.client(5) as client:
        assert client.get(f"http://{_address(server)}/moved/{ELSEWHERE}/file").status_code == 200

    assert [path for path, _ in server.asked] == [f"/moved/{ELSEWHERE}/file"]
    assert [path for path, _ in proxy.asked] == [f"http://{ELSEWHERE}/file"]
