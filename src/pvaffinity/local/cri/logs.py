"""Container logs in the CRI format, which ``kubectl logs`` reads through the kubelet.

One line: time in RFC 3339 with nanoseconds, stream, ``F`` (full) or ``P`` (to be continued), text
(kubernetes, pkg/kubelet/kuberuntime/logs and staging/src/k8s.io/cri-client/pkg/logs).
"""

from __future__ import annotations

__all__ = ["ContainerLog"]

import logging
import time
from pathlib import Path

_LONGEST = 16384  # bytes of one entry, as in containerd
_LOG = logging.getLogger(__name__)


class ContainerLog:
    """The log file of one container; held open for one write only, so rotation by renaming needs nothing else.

    Args:
        path: the file, or None for a container without log.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def open(self) -> None:
        """Create the file if it is not there; the kubelet asks for it after a rotation."""
        self._append(b"")

    def write(self, stream: str, text: str) -> None:
        """Append one line, now. A log that cannot be written is reported on stderr and does not stop the container."""
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z {stream}".encode()
        entries = b""
        for line in text.split("\n"):
            data = line.encode("utf-8", "surrogateescape")
            while len(data) > _LONGEST:
                entries += b"%s P %s\n" % (stamp, data[:_LONGEST])
                data = data[_LONGEST:]
            entries += b"%s F %s\n" % (stamp, data)
        self._append(entries)

    def _append(self, data: bytes) -> None:
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(data)
        except OSError as error:
            _LOG.warning("cannot write the log %s: %s", self.path, error.strerror)
