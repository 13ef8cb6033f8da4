"""The container engine of this machine, Docker or Podman, spoken to through its command line.

kind speaks to the same command (``KIND_EXPERIMENTAL_PROVIDER`` says which), so what is found here is what kind uses.
"""

from __future__ import annotations

__all__ = ["Engine", "EngineError", "Image", "detect", "require"]

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pvaffinity.errors import UserError

_OLDEST = {"docker": (20, 10), "podman": (4, 0)}
"""kind needs ``--cgroupns``, Docker API 1.41; Podman 4 is the first with netavark, whose names kind relies on."""
_KIND_CHOICE = "KIND_EXPERIMENTAL_PROVIDER"
_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "CONTAINER_HOST", _KIND_CHOICE)
"""What decides which engine is spoken to."""


_PATIENCE = 10.0  # seconds in which an engine says what it is; one that is well takes less than a tenth


class EngineError(Exception):
    """The engine refused a command; the argument is its message, in one line.

    Attributes:
        messages: all it wrote.
    """

    def __init__(self, why: str, messages: str = "") -> None:
        super().__init__(why)
        self.messages = messages or why


@dataclass(frozen=True)
class Image:
    """An image the engine has."""

    id: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Engine:
    """An engine that answers.

    Attributes:
        name: ``docker`` or ``podman``.
        binary: the command.
        version: of the server.
        cgroup: version of control groups on its machine, 1 or 2.
        memory: bytes its machine has.
        local: whether its machine is this one, and no virtual machine or remote host.
        rootless: whether it runs as an ordinary user.
        environment: the variables that decided for it; with them, another process finds the same engine.
    """

    name: str
    binary: str
    version: str
    cgroup: int
    memory: int
    local: bool
    rootless: bool
    environment: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def run(
        self,
        *arguments: str,
        source: bytes | IO[bytes] | None = None,
        timeout: float | None = 60.0,
        patient: bool = False,
    ) -> str:
        """Run a command of the engine and return its standard output, stripped.

        Args:
            arguments: such as ``"image", "ls"``.
            source: standard input.
            timeout: seconds.
            patient: if we are interrupted, let it end first: what the engine makes, it makes without us, too.

        Raises:
            EngineError: it was refused or took too long.
        """
        piped = source if source is None or isinstance(source, bytes) else None
        stream = source if source is not None and not isinstance(source, bytes) else None
        process = subprocess.Popen(
            [self.binary, *arguments],
            stdin=stream or (subprocess.PIPE if piped is not None else subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            process_group=0,  # Ctrl-C ends us, not a half-done request of ours
        )
        try:
            output, messages = process.communicate(piped, timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            raise EngineError(f"{self.name} {arguments[0]}: no answer within {timeout:.0f} s") from None
        except BaseException:
            if patient:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=timeout)
            _end(process)
            raise
        if process.returncode:
            text = messages.decode(errors="replace")
            lines = [line for line in text.splitlines() if line.strip() and " --help'" not in line]
            why = lines[-1] if lines else f"{self.name} {arguments[0]}: exit code {process.returncode}"
            raise EngineError(why, text)
        return output.decode(errors="replace").strip()

    @property
    def env(self) -> dict[str, str]:
        """The environment for the engine's command and for kind."""
        rest = {key: value for key, value in os.environ.items() if key not in _VARIABLES}
        return {**rest, **self.environment, _KIND_CHOICE: self.name}

    def image(self, reference: str) -> Image | None:
        """An image by name or id; None where the engine does not have it."""
        try:
            text = self.run("image", "inspect", reference)
        except EngineError:
            return None
        data = json.loads(text)[0]
        return Image(data["Id"], (data.get("Config") or {}).get("Labels") or data.get("Labels") or {})

    def containers(self, label: str) -> tuple[str, ...]:
        """Ids of containers, stopped ones included, that carry a label, given as ``key`` or ``key=value``."""
        return tuple(self.run("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}").split())

    def data_root(self) -> Path | None:
        """Where the engine keeps images, if that is a directory of this machine."""
        template = "{{.DockerRootDir}}" if self.name == "docker" else "{{.Store.GraphRoot}}"
        with contextlib.suppress(EngineError):
            path = Path(self.run("info", "--format", template))
            return path if self.local and path.is_dir() else None
        return None


def detect() -> Engine | None:
    """The engine that kind would use and that answers; None if there is none."""
    try:
        return require()
    except UserError:
        return None


def require(environment: Mapping[str, str] | None = None, *, instead: str = "use --provider local") -> Engine:
    """The engine that kind would use.

    Args:
        environment: variables that decided for an engine before, instead of today's.
        instead: what needs no engine, for the advice; empty where nothing does.

    Raises:
        UserError: none is installed, none answers, or it is too old.
    """
    if environment is None:
        environment = {key: value for key, value in os.environ.items() if key in _VARIABLES}
    chosen = environment.get(_KIND_CHOICE)
    if chosen and chosen not in _OLDEST:
        raise UserError(f"{_KIND_CHOICE} is {chosen!r}", f"set it to {' or '.join(_OLDEST)}, or unset it")
    names = [chosen] if chosen else list(_OLDEST)
    found = {name: path for name in names if (path := shutil.which(name))}
    if not found:
        raise UserError(
            f"there is no container engine: neither of {', '.join(names)} is on PATH",
            "install Docker (https://docs.docker.com/engine/install/) or Podman" + _or(instead),
        )
    silent: dict[str, str] = {}
    for name, path in found.items():
        try:
            engine = _ask(name, path, environment)
        except (EngineError, OSError, ValueError, KeyError, TypeError) as error:
            silent[name] = str(error)
            continue
        if tuple(int(n) for n in re.findall(r"\d+", engine.version)[:2]) < _OLDEST[name]:
            oldest = ".".join(map(str, _OLDEST[name]))
            raise UserError(f"{name} {engine.version} is too old for kind", f"install {name} {oldest} or newer")
        return engine
    name, why = next(iter(silent.items()))
    raise UserError(f"{name} does not answer: {why}", _remedy(name, why, environment, _or(instead)))


def _or(instead: str) -> str:
    return f", or {instead}" if instead else ""


def _remedy(name: str, why: str, environment: Mapping[str, str], instead: str) -> str:
    if "permission denied" in why.lower():
        return "let your user speak to it: sudo usermod -aG docker $USER, then log in again"
    if name == "podman":
        return "see what it says to: podman info"
    if "no answer" in why:
        host = environment.get("DOCKER_HOST")
        how = f" at DOCKER_HOST={host}" if host else " (sudo systemctl restart docker)"
        return f"restart the engine{how}{instead}"
    if host := environment.get("DOCKER_HOST"):
        return f"start the engine at DOCKER_HOST={host}, or unset DOCKER_HOST{instead}"
    return f"start it (sudo systemctl start docker){instead}"


def _ask(name: str, path: str, environment: Mapping[str, str]) -> Engine:
    bare = Engine(name, path, "", 2, 0, local=False, rootless=False, environment=environment)
    data: dict[str, Any] = json.loads(bare.run("info", "--format", "{{json .}}", timeout=_PATIENCE))
    if name == "podman":
        host = data["host"]
        return Engine(
            name,
            path,
            data["version"]["Version"],
            2 if host.get("cgroupVersion") == "v2" else 1,
            host["memTotal"],
            local=not host.get("serviceIsRemote", False),
            rootless=host["security"]["rootless"],
            environment=environment,
        )
    if data.get("ServerErrors"):
        raise EngineError(data["ServerErrors"][0])
    where = environment.get("DOCKER_HOST", "unix://")
    same_kernel = data.get("KernelVersion") == os.uname().release and data.get("OSType") == "linux"
    return Engine(
        name,
        path,
        data["ServerVersion"],
        int(data.get("CgroupVersion") or 1),
        data["MemTotal"],
        local=where.startswith("unix://") and same_kernel,
        rootless=any("rootless" in option for option in data.get("SecurityOptions") or ()),
        environment=environment,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)
            return
