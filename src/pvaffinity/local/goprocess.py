"""Run ``go`` politely: with progress, a log, and an end that takes its children along."""

from __future__ import annotations

__all__ = ["Go", "GoError", "end", "first_error"]

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pvaffinity.local.bincache import disk_full, host, writing
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.tied import tied

_GRACE = 5.0  # seconds between SIGINT and SIGKILL
_LATER = 1.2  # the packages that others wait for are small: n of N take (n/N)^1.2 of the time, within 3 % of it
_NO_ERROR = re.compile(
    r"go: (downloading|finding|extracting|added|upgraded|downgraded|found) |go: .* switching to go\S+$"
    r"|# |[\w.~/-]+$|\$ |\s*$|package \S+$"
)
_FULL = re.compile("no space left on device|disk quota exceeded", re.IGNORECASE)


class GoError(Exception):
    """A go command failed; the text is the first line that says why.

    Attributes:
        output: what it wrote to standard output nevertheless.
    """

    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output


@dataclass(frozen=True)
class Go:
    """A go command, the directory and environment it runs in, and where its messages go.

    Attributes:
        binary: absolute path.
        work: a directory that may be filled; removed by its owner.
        log: messages are appended.
    """

    binary: str
    work: Path
    log: Path
    reporter: Reporter

    @property
    def module(self) -> Path:
        """The directory of the throw-away module."""
        return self.work / "module"

    def prepare(self) -> None:
        """Make the directories and an empty log."""
        with writing(self.work):
            self.log.parent.mkdir(exist_ok=True)
            self.log.write_text("", encoding="utf-8")
            self.module.mkdir()
            self._temporary.mkdir()

    @property
    def _temporary(self) -> Path:
        return self.work / "go-tmp"

    def _environment(self) -> dict[str, str]:
        # The user's, less what would break the build; Go's proxies, checksum database and caches stay the user's.
        system, machine = host()
        ours = {
            "CGO_ENABLED": "0",
            "GO111MODULE": "on",
            "GOARCH": machine,
            "GOFLAGS": "-mod=mod",
            "GOOS": system,
            "GOTMPDIR": str(self._temporary),
            "GOTOOLCHAIN": "auto",
            "GOWORK": "off",
        }
        return {**os.environ, **ours}

    def __call__(self, *arguments: str, packages: int = 0, **env: str) -> str:
        """Run go with ``arguments``; returns its standard output.

        Args:
            arguments: such as ``"build", "-v", "./..."``.
            packages: how many it will compile at most, for the progress.
            env: variables, beside the usual ones.

        On any exception, KeyboardInterrupt included, the whole process group is ended before it is passed on.

        Raises:
            GoError: it failed.
            UserError: the disk is full.
        """
        code, output = self._run(arguments, {**self._environment(), **env}, packages)
        if code:
            raise self.error(self.log.read_text(errors="replace", encoding="utf-8"), output)
        return output

    def error(self, messages: str, output: str = "") -> Exception:
        """What to raise for messages of a command that failed."""
        full = next((line.strip() for line in messages.splitlines() if _FULL.search(line)), "")
        return disk_full(self.work, detail=full) if full else GoError(first_error(messages), output)

    def _run(self, arguments: tuple[str, ...], env: Mapping[str, str], packages: int) -> tuple[int, str]:
        started = time.monotonic()
        output = self.work / "stdout"
        with writing(self.log):
            log = self.log.open("ab", buffering=0)
            log.write(f"$ go {' '.join(arguments)}\n".encode())
        with log, output.open("wb") as out:
            process = subprocess.Popen(
                tied(self.binary, *arguments),
                cwd=self.module,
                env=env,
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
                        if selector.select(min(self.reporter.every, 1.0)):
                            block = os.read(process.stderr.fileno(), 1 << 16)
                            if not block:
                                break
                            seen += block
                            with writing(self.log):
                                log.write(block)
                        self.reporter.tick(_doing(seen.decode(errors="replace"), packages, time.monotonic() - started))
                return process.wait(), output.read_text(encoding="utf-8")
            except BaseException:
                end(process)
                raise


def _doing(seen: str, packages: int, seconds: float) -> str:
    """What has been done, and how much is left: fewer than ``packages`` where Go's cache has some already."""
    fetched = seen.count("go: downloading ")
    compiled = sum(1 for line in seen.splitlines() if re.fullmatch(r"[\w.~/-]+", line))
    done = [f"{fetched} modules fetched"] * bool(fetched)
    if compiled:
        left = seconds * ((packages / compiled) ** _LATER - 1) / 60
        done += [f"{compiled}{f' of {packages}' * bool(packages)} packages compiled"]
        done += [f"about {left:.0f} min left" if left >= 1.5 else "about a minute left"] * bool(packages)
    return ", ".join(["building", *done])


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the process group that a process leads; kill it if that does not help within seconds."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)


def first_error(log: str) -> str:
    """The first line of go's messages that says what went wrong, with the line that explains it, if one follows."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if not _NO_ERROR.match(line):
            after = lines[number + 1].strip() if number + 1 < len(lines) and lines[number + 1][:1] in "\t " else ""
            return f"{line.strip()} {after}".strip()
    return "no message"
