"""HTTP servers for selftests, each in a thread that is gone afterwards."""

import contextlib
import threading


class Quiet:
    """Before a handler of ``http.server``: requests are not told on standard error."""

    def log_message(self, *_):
        """Say nothing."""


@contextlib.contextmanager
def serving(server):
    """Let a server of ``socketserver`` serve meanwhile."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
