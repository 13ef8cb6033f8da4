"""The process of a running container: a script that runs, and what signals do to it.

What real runtimes report when a container is stopped depends on the program. The simulator answers for three kinds:

* The image's own entrypoint (a container without command and args) and ``pause`` end at once, with exit code 0: the
  pause image exits 0 on SIGTERM (kubernetes, build/pause/linux/pause.c), and so do servers such as nginx.
* Any other command ends at once with 128 + the signal's number, 143 for SIGTERM: a process that does not handle it, run
  under an init (``shareProcessNamespace``, tini). Without one it would be PID 1, to which the Linux kernel delivers no
  unhandled signal, and hold out for the whole grace period; suites would only wait longer for it.
* A script that has trapped the signal runs its trap, and one that ignores it (``trap '' TERM``) holds out. When the
  grace period is over SIGKILL ends it, with exit code 137.
"""

from __future__ import annotations

__all__ = ["Process", "exit_reason"]

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from pathlib import PurePosixPath
from typing import Any

from pvaffinity.local.cri.language import command_line
from pvaffinity.local.cri.shell import Shell

_BROKEN = 255  # exit code of a script that the simulator failed to run
_LOG = logging.getLogger(__name__)
_POLITE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT})


def exit_reason(code: int) -> str:
    """The reason containerd gives for an exit code: ``Completed`` or ``Error``."""
    return "Error" if code else "Completed"


class Process:
    """A command, run in the background from construction on.

    Args:
        argv: command and arguments; empty for the image's own entrypoint.
        shell: what runs it.
        ended: called once, with the exit code, from the event loop or from within :meth:`deliver`.
    """

    def __init__(self, argv: list[str], shell: Shell, ended: Callable[[int], None]) -> None:
        self._polite = not argv or PurePosixPath(argv[0]).name == "pause"
        self._script = None if self._polite else command_line(argv)
        self._shell = shell
        self._ended = ended
        self._over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._main())

    def deliver(self, number: signal.Signals) -> None:
        """Deliver a signal; SIGKILL cannot be handled."""
        if self._over:
            return
        if number != signal.SIGKILL and number in self._shell.traps:
            self._spawn(self._trap(number))
        else:
            self._end(0 if self._polite and number in _POLITE else 128 + number)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _main(self) -> None:
        if self._script is None:
            return  # until a signal comes
        try:
            code = await self._shell.run(self._script)
        except Exception:  # noqa: BLE001  a container must end, whatever its script does to the simulator
            _LOG.exception("a script failed")
            code = _BROKEN
        self._end(code)

    async def _trap(self, number: signal.Signals) -> None:
        script = self._shell.traps[number]
        code = None if script is None else await self._shell.run_trap(script)
        if code is not None:
            self._end(code)

    def _end(self, code: int) -> None:
        if self._over:
            return
        self._over = True
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        self._ended(code)
