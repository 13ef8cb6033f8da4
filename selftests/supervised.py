"""A cluster's supervisor over fake daemons in real namespaces, owned by a process that can be killed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from pvaffinity.leftovers import end_processes, processes_of
from pvaffinity.local.daemon import DaemonSpec
from pvaffinity.local.owner import Owner
from pvaffinity.local.plan import environment
from pvaffinity.local.readiness import Readiness

FOREVER = "import time; print('serving', flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('serving', flush=True); time.sleep(600)"


class Supervised:
    """One supervisor over fake daemons, owned by a process that can be killed."""

    def __init__(self, directory: Path, scripts: dict[str, str], prefix: tuple[str, ...] = (), **spec: Any) -> None:
        self.directory = directory
        self.owner = subprocess.Popen(["sleep", "600"])
        (directory / "logs").mkdir(parents=True)
        env = environment(directory)
        daemons = [
            DaemonSpec(name, (sys.executable, "-c", script), (), "", env, Readiness("line", "serving"), 60.0)
            for name, script in scripts.items()
        ]
        for daemon in spec.get("daemons", ()):
            daemon["env"] = env
        wanted = {
            "owner": dataclasses.asdict(Owner.of(self.owner.pid)),
            "api": {"host": "127.0.0.1", "port": 6443},
            "daemons": [dataclasses.asdict(daemon) for daemon in daemons],
            "nodes": [],
            "stop_order": list(scripts),
        } | spec
        (directory / "spec.json").write_text(json.dumps(wanted))
        with (directory / "logs" / "supervisor.log").open("w") as log:
            self.launcher = subprocess.Popen(
                [*prefix, sys.executable, "-m", "pvaffinity.local.supervisor", str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                start_new_session=True,
            )
        assert self.launcher.wait(60) == 0

    def says(self) -> dict[str, Any]:
        """What the supervisor says next; {} at its end."""
        assert self.launcher.stdout is not None
        return json.loads(self.launcher.stdout.readline() or "{}")

    def until(self, event: str) -> dict[str, Any]:
        """Listen until it says this."""
        while (said := self.says()).get("event") != event:
            assert said, f"the supervisor ended before it said {event}"
        return said

    def gone(self, *, directory: bool = True, seconds: float = 60.0) -> bool:
        """Whether every process (and the directory) is gone, at the latest after some seconds."""
        deadline = time.monotonic() + seconds
        while processes_of(self.directory) or (directory and self.directory.exists()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def supervisors(self) -> list[psutil.Process]:
        """Outer part, inner part, helpers."""
        found = []
        for pid in processes_of(self.directory):
            with contextlib.suppress(psutil.NoSuchProcess):  # a helper that has done its work
                process = psutil.Process(pid)
                if "pvaffinity.local.supervisor" in process.cmdline():
                    found.append(process)
        return sorted(found, key=lambda p: p.create_time())

    def close(self) -> None:
        """End whatever is left."""
        self.owner.kill()
        self.owner.wait()
        end_processes(self.directory)
        for stream in (self.launcher.stdin, self.launcher.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        shutil.rmtree(self.directory, ignore_errors=True)
