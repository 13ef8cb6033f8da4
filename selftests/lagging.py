"""A kube-scheduler that hears of PersistentVolumes late: between it and the API server stands a proxy of ours.

The proxy passes everything on and holds back only the watch of PersistentVolumes, by a fixed time and in order. So the
scheduler's staleness, a rare thing of milliseconds otherwise, becomes a condition of the experiment.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import queue
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from selftests.serving import Quiet, serving

_HOP = ("connection", "transfer-encoding", "content-length", "host", "keep-alive")


class Proxy(http.server.ThreadingHTTPServer):
    """Passes requests on to an API server, as the holder of a client certificate."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, server: str, tls: ssl.SSLContext, lag: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.tls, self.lag = urlsplit(server), tls, lag
        self.held = 0


class _Handler(Quiet, http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        upstream = http.client.HTTPSConnection(self.server.target.netloc, context=self.server.tls)
        with contextlib.closing(upstream), contextlib.suppress(OSError, http.client.HTTPException):
            upstream.request(
                self.command, self.path, body, {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            )
            answer = upstream.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._copy(answer)
            return
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815 - http.server's names

    def _copy(self, answer: http.client.HTTPResponse) -> None:
        url = urlsplit(self.path)
        late = url.path == "/api/v1/persistentvolumes" and "watch=true" in url.query
        parts: queue.Queue[tuple[float, bytes]] = queue.Queue()
        lag = self.server.lag if late else 0.0

        def read() -> None:
            part = b"-"
            while part:
                try:
                    part = answer.read1(1 << 16)
                except (OSError, ValueError, http.client.HTTPException):
                    part = b""
                parts.put((time.monotonic() + lag, part))

        threading.Thread(target=read, daemon=True).start()
        part = b"-"
        while part:
            due, part = parts.get()
            while (early := due - time.monotonic()) > 0:
                time.sleep(early)
            self.server.held += late and bool(part)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))


@contextlib.contextmanager
def late_scheduler(binary: Path, server: str, pki: Path, directory: Path, lag: float) -> Iterator[Proxy]:
    """Run a kube-scheduler, with a scheduler's credential, that hears of every volume ``lag`` seconds late."""
    tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    tls.load_cert_chain(pki / "kube-scheduler.crt", pki / "kube-scheduler.key")
    with serving(Proxy(server, tls, lag)) as proxy:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "late", "cluster": {"server": f"http://127.0.0.1:{proxy.server_port}"}}],
            "contexts": [{"name": "late", "context": {"cluster": "late", "user": ""}}],
            "current-context": "late",
        }
        path, log = directory / "late.kubeconfig", directory / "late-scheduler.log"
        path.write_text(json.dumps(config))
        command = [binary, f"--kubeconfig={path}", "--leader-elect=false", "--secure-port=0"]
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
            try:
                yield proxy
                assert process.poll() is None, log.read_text()[-2000:]
            finally:
                process.kill()
