"""One start of a supervisor, seen from its creator: what it says, and what its failures mean to a user."""

from __future__ import annotations

__all__ = ["Launch"]

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pvaffinity.clusterconfig import ClusterConfig
from pvaffinity.errors import UserError, did_you_mean
from pvaffinity.local import control
from pvaffinity.local.owner import remove_tree
from pvaffinity.local.plan import environment


class Launch:
    """Starts the supervisor of one cluster directory and listens to it until the cluster is usable."""

    def __init__(self, directory: Path, config: ClusterConfig, binary: Callable[[str], Path]) -> None:
        self.directory, self.config, self.binary = directory, config, binary
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, detached: it is nobody's child and has no terminal.

        Raises:
            UserError: no process can be started.
        """
        with (self.directory / "logs" / "supervisor.log").open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "pvaffinity.local.supervisor", str(self.directory)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment(self.directory),
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                raise UserError(
                    f"no supervisor can be started: {error.strerror}", "free memory or processes"
                ) from error

    def port(self) -> int:
        """The API server's port on 127.0.0.1."""
        said = self._listen()
        return int(said["port"])

    def tell(self, condition: str) -> None:
        """Say that a condition has come about."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then it has said why, and wait() reads it
            self._process.stdin.write(condition.encode() + b"\n")
            self._process.stdin.flush()

    def wait(self, progress: Callable[[str], None]) -> float:
        """Wait until the cluster is usable; returns the seconds it took.

        Raises:
            UserError: it did not start.
        """
        while True:
            said = self._listen()
            if said["event"] == "progress":
                progress(said["line"])
            elif said["event"] == "ready":
                return float(said["seconds"])

    def undo(self) -> None:
        """End whatever has been started and remove the directory."""
        with contextlib.suppress(control.NoAnswerError):
            control.ask(self.directory, "stop")
        remove_tree(self.directory)

    def close(self) -> None:
        """Let go of the supervisor, which lives on by itself."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._process.wait()

    def _listen(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            log = self.directory / "logs" / "supervisor.log"
            detail = log.read_text(errors="replace", encoding="utf-8")[-2000:] if log.exists() else ""
            raise UserError(
                "the cluster's supervisor ended without a word", "try again; pvaffinity doctor checks this machine",
                detail=detail,
            )  # fmt: skip
        said: dict[str, Any] = json.loads(line)
        if said["event"] == "failed":
            raise self._explain(said)
        return said

    def _explain(self, said: dict[str, Any]) -> UserError:
        what, log = said["what"], said.get("log", "")
        if said.get("kind") == "namespaces":
            return UserError(what, "pvaffinity doctor says how to allow it; or use --provider kind")
        if found := re.search(r"unrecognized feature gate: (\S+)", what):
            return self._unknown_gate(what, found[1], said.get("daemon", ""))
        if "cannot be started" in what or "exec format" in what.lower() or "was ended by SIG" in what:
            part = said.get("daemon", "")
            program = self._program("kubelet" if part.startswith("kubelet-") else part)
            fix = f"the binary is damaged or for another machine: replace {program}, or: pvaffinity binaries fetch"
            return UserError(what, fix, detail=log)
        path = self.config.path
        flags = re.search(r"unknown flag: (\S+)", what)
        if flags:
            return UserError(what, f"remove {flags[1].lstrip('-')} from extraArgs in {path}", detail=log)
        return UserError(what, f"the log's end is below; the flags come from {path}", detail=log)

    def _program(self, daemon: str) -> str:
        with contextlib.suppress(KeyError):
            return str(self.binary(daemon))
        return daemon

    def _unknown_gate(self, what: str, gate: str, daemon: str) -> UserError:
        config = self.config
        where = f"featureGates.{gate}"
        if gate not in config.feature_gates:
            where = (
                f"featureGates of the kubelet patch ({gate})"
                if "kubelet" in daemon
                else f"extraArgs.feature-gates ({gate})"
            )
        return UserError(what, f"correct {where} in {config.path}{did_you_mean(gate, self._known_gates())}")

    def _known_gates(self) -> list[str]:
        try:
            command = [str(self.binary("kube-apiserver")), "--help"]
            text = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", timeout=20, check=False
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return []
        return re.findall(r"(?:kube:|\s)([A-Z]\w+)=true\|false", text)
