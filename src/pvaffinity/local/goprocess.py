"""Run ``go`` politely: with progress, a log, and an end that takes its children along."""

from __future__ import annotations

__all__ = ["first_error", "run"]

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pvaffinity.local.bincache import writing
from pvaffinity.local.reporter import Reporter

# Between us and go: asks the kernel to interrupt go when we die, however we die, and lowers its priority.
_LAUNCH = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.nice(5)
os.execv(sys.argv[2], sys.argv[2:])
"""
_GRACE = 5.0  # seconds between SIGINT and SIGKILL
_NO_ERROR = re.compile(
    r"go: (downloading|finding|extracting|added|upgraded|downgraded|found) |# |[\w.~/-]+$|\$ |\s*$|package \S+$"
)


def run(
    command: Sequence[str], directory: Path, env: Mapping[str, str], log: Path, reporter: Reporter
) -> tuple[int, str]:
    """Run a go command; its messages go to the end of ``log``.

    On any exception, KeyboardInterrupt included, the whole process group is ended before it is passed on.

    Returns:
        Exit code and standard output.
    """
    output = directory / ".output"
    with writing(log):
        messages = log.open("ab", buffering=0)
    with messages:
        messages.write(f"$ {' '.join(command)}\n".encode())
        with output.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-ISc", _LAUNCH, str(os.getpid()), *command],
                cwd=directory,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        try:
            assert process.stderr
            seen = bytearray()
            with process.stderr, selectors.DefaultSelector() as selector:
                selector.register(process.stderr, selectors.EVENT_READ)
                while True:
                    if selector.select(min(reporter.every, 1.0)):
                        block = os.read(process.stderr.fileno(), 1 << 16)
                        if not block:
                            break
                        with writing(log):
                            messages.write(block)
                        seen += block
                    reporter.tick(_doing(seen.decode(errors="replace")))
            return process.wait(), output.read_text()
        except BaseException:
            _end(process)
            raise


def _doing(seen: str) -> str:
    fetched = seen.count("go: downloading ")
    compiled = sum(1 for line in seen.splitlines() if re.fullmatch(r"[\w.~/-]+", line))
    if compiled:
        return f"building, {compiled} packages compiled"
    return f"fetching modules, {fetched} so far" if fetched else "working"


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            if number == signal.SIGKILL:
                return


def first_error(log: str) -> str:
    """The first line of go's messages that says what went wrong, with the line that explains it, if one follows."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if not _NO_ERROR.match(line):
            after = lines[number + 1].strip() if number + 1 < len(lines) and lines[number + 1][:1] in "\t " else ""
            return f"{line.strip()} {after}".strip()
    return "no message"
