"""What is on the wire between client and API server: streams of JSON lines, ways to end one early, and second tries."""

from __future__ import annotations

__all__ = [
    "TRANSPORT_ERRORS",
    "Silence",
    "WatchStop",
    "decode",
    "is_transient",
    "lines",
    "patient",
    "selectors",
    "tells_nothing",
]

import contextlib
import json
from collections.abc import Callable, Iterator

import tenacity
import urllib3

from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj

TRANSPORT_ERRORS = (urllib3.exceptions.HTTPError, ConnectionError, TimeoutError)
"""What a request raises where no answer came: no news about the object."""

_NOT_SENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)


def is_transient(error: ApiError) -> bool:
    """Whether an answer says nothing about what was asked, only that the server could not answer at the time.

    429 where it is full, shuts down or fills its caches; 503 and 504; and 500 where etcd did not answer in time or has
    just got another leader. No other 500, such as a panic's: that is the server's own fault; nor one of an etcd
    whose disk is full, which stays so until somebody makes room.
    """
    late = "etcdserver: " in error.message and "space exceeded" not in error.message
    return error.code in (429, 503, 504) or (error.code == 500 and late)


def tells_nothing(error: BaseException) -> bool:
    """Whether nobody can say what became of a request: no answer came, or a transient one."""
    return isinstance(error, TRANSPORT_ERRORS) or (isinstance(error, ApiError) and is_transient(error))


def patient(*, repeatable: bool, once: bool = False) -> tenacity.Retrying:
    """Tries of a request, within seconds: another one where the one before told nothing and can have done no harm.

    Any request is tried again if it certainly was not begun: its connection was never made, or it was answered with
    429, as client-go and thus kubectl do. One that is ``repeatable``, such as a read, is tried again after a broken
    connection and a transient answer, too. ``once`` is for whoever measures: there is no other try.
    """

    def again(error: BaseException) -> bool:
        not_begun = isinstance(error, _NOT_SENT) or (isinstance(error, ApiError) and error.code == 429)
        return not_begun or (repeatable and tells_nothing(error))

    def enough(state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, urllib3.exceptions.TimeoutError):  # has taken its time already
            return once or state.attempt_number >= 2
        return once or state.attempt_number >= (10 if isinstance(error, ApiError) else 4)

    wait = tenacity.wait_exponential(0.1, max=1)
    return tenacity.Retrying(retry=tenacity.retry_if_exception(again), stop=enough, wait=wait, reraise=True)


class Silence:
    """A server that does not answer, and is known not to do so any more, is not asked again and again.

    Attributes:
        ended: why it will not answer any more, "" where it may; asked only after an answer did not come.
    """

    def __init__(self) -> None:
        self.ended: Callable[[], str] = lambda: ""
        self._lasts = False

    @contextlib.contextmanager
    def broken(self) -> Iterator[None]:
        """Around a request: only the first one of a server that has ended takes its whole time.

        Raises:
            ConnectionError: why it has ended.
        """
        if self._lasts and (why := self.ended()):
            raise ConnectionError(why)
        try:
            yield
        except TRANSPORT_ERRORS:
            self._lasts = True
            raise
        self._lasts = False


class WatchStop:
    """Lets one thread end another thread's watch at once."""

    def __init__(self) -> None:
        self._answer: urllib3.BaseHTTPResponse | None = None
        self.closed = False

    def attach(self, answer: urllib3.BaseHTTPResponse) -> None:
        """Called by the watch when its stream is open."""
        self._answer = answer
        if self.closed:
            self.close()

    def close(self) -> None:
        """End the stream now; the watch's iterator finishes without an error."""
        self.closed = True
        if self._answer is not None:
            with contextlib.suppress(RuntimeError, ValueError, OSError):  # it has ended already
                self._answer.shutdown()


def lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The whole lines of a streamed answer, as they come."""
    rest = b""
    for chunk in answer.stream(65536, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())


def selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    """Label and field selector as query parameters."""
    return {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}


def decode(data: bytes) -> Obj:
    """An answer's JSON; whatever is none becomes a message."""
    try:
        decoded = json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace")[:500]}
    return decoded if isinstance(decoded, dict) else {"value": decoded}
