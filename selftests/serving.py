"""HTTP servers for selftests, each in a thread that is gone afterwards."""

import contextlib
import threading


@contextlib.contextmanager
def serving(server):
    """Let a server of ``socketserver`` serve meanwhile."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
