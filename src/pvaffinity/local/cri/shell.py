"""Runs the command language of simulated containers.

Commands: ``exit [N]``, ``sleep SECONDS…`` (also ``2m``, ``infinity``), ``echo``, ``true``, ``:``, ``false``,
``set -e``/``+e``, ``exec COMMAND``, ``trap SCRIPT SIGNAL…`` (``''`` ignores the signal, ``-`` takes the trap back),
``hostname``, ``date``, and ``heartbeat SECONDS [TEXT]``, which writes a line at once and then every so many seconds
until it is stopped. A command is known by its last path component: ``/bin/sleep 1`` sleeps.

A command that is none of these runs until it is stopped, as a server would, when it is the container's; in an exec
probe or a hook it succeeds at once. So does everything outside the language (:class:`~.language.Unknown`).

Unlike a real shell's: a trap runs at once, not when the foreground command has ended; one round of a loop takes at
least 0.1 s.
"""

from __future__ import annotations

__all__ = ["Shell"]

import asyncio
import datetime
import math
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from pvaffinity.local.cri.language import AndOr, Command, Loop, Script, Unknown, Variable, Word, parse

_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SHORTEST_ROUND = 0.1


class _ExitError(Exception):
    """The ``exit`` command, on its way out of the script."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Shell:
    """One run of a script.

    Args:
        write: takes the stream (``stdout`` or ``stderr``) and one line of output.
        env: environment variables.
        hostname: what ``hostname`` prints.
        unknown_succeeds: commands that are not known succeed at once, instead of running until stopped.
    """

    def __init__(
        self,
        write: Callable[[str, str], None],
        env: Mapping[str, str],
        hostname: str,
        *,
        unknown_succeeds: bool = False,
    ) -> None:
        self._write = write
        self._env = env
        self._hostname = hostname
        self._unknown_succeeds = unknown_succeeds
        self._errexit = False
        self._status = 0
        self.traps: dict[signal.Signals, Script | None] = {}
        """Signals that the script handles; None: it ignores the signal."""

    async def run(self, script: Script) -> int:
        """Run to the end and return the exit code."""
        return await self._leave(script, ends=True) or 0

    async def run_trap(self, script: Script) -> int | None:
        """Run a trap; the exit code if it exits, None if the trapped script goes on."""
        return await self._leave(script, ends=False)

    async def _leave(self, script: Script, *, ends: bool) -> int | None:
        self._errexit = self._errexit or script.errexit
        try:
            status = await self._script(script)
        except _ExitError as left:
            return left.code
        return status if ends else None

    async def _script(self, script: Script) -> int:
        for statement in script.statements:
            await self._and_or(statement)
        return self._status

    async def _and_or(self, statement: AndOr) -> None:
        self._status = await self._node(statement.first)
        last_ran = not statement.rest
        for index, (operator, node) in enumerate(statement.rest):
            if (operator == "&&") == (self._status == 0):
                self._status = await self._node(node)
                last_ran = index == len(statement.rest) - 1
        if self._errexit and self._status and last_ran:
            raise _ExitError(self._status)

    async def _node(self, node: Command | Unknown | Loop) -> int:
        if isinstance(node, Unknown):
            return await self._unknown()
        if isinstance(node, Loop):
            return await self._loop(node)
        return await self._command([self._expand(word) for word in node.words])

    async def _loop(self, loop: Loop) -> int:
        clock = asyncio.get_running_loop().time
        status = 0
        while True:
            began = clock()
            errexit, self._errexit = self._errexit, False  # a condition may fail
            going = (await self._script(loop.condition) == 0) != loop.until
            self._errexit = errexit
            if not going:
                return status
            status = await self._script(loop.body)
            await asyncio.sleep(max(0.0, began + _SHORTEST_ROUND - clock()))

    def _expand(self, word: Word) -> str:
        def value(part: str | Variable) -> str:
            if isinstance(part, str):
                return part
            return str(self._status) if part.name == "?" else self._env.get(part.name, "")

        return "".join(value(part) for part in word)

    async def _unknown(self) -> int:
        if not self._unknown_succeeds:
            await asyncio.get_running_loop().create_future()
        return 0

    async def _command(self, words: list[str]) -> int:
        name, arguments = PurePosixPath(words[0]).name, words[1:]
        match name:
            case "exec" if arguments:
                raise _ExitError(await self._command(arguments))
            case "exit":
                raise _ExitError(self._exit_code(arguments))
            case "sleep":
                return await self._sleep(arguments)
            case "heartbeat":
                return await self._heartbeat(arguments)
            case "echo":
                while arguments and re.fullmatch("-[neE]+", arguments[0]):
                    arguments = arguments[1:]
                self._write("stdout", " ".join(arguments))
            case "hostname":
                self._write("stdout", self._hostname)
            case "date":
                self._write("stdout", datetime.datetime.now(datetime.UTC).strftime("%a %b %e %H:%M:%S UTC %Y"))
            case "trap":
                return self._trap(arguments)
            case "set":
                for argument in arguments:
                    if re.fullmatch(r"[-+][a-z]*e[a-z]*", argument):
                        self._errexit = argument.startswith("-")
            case "false":
                return 1
            case "true" | ":" | "exec":
                pass
            case _:
                return await self._unknown()
        return 0

    def _exit_code(self, arguments: list[str]) -> int:
        if not arguments:
            return self._status
        return int(arguments[0]) % 256 if re.fullmatch(r"\d{1,9}", arguments[0]) else 2

    def _refuse(self, text: str) -> int:
        self._write("stderr", text)
        return 1

    async def _sleep(self, arguments: list[str]) -> int:
        durations = [_seconds(argument) for argument in arguments]
        if not durations or None in durations:
            return self._refuse(f"sleep: invalid time interval: {' '.join(arguments)}")
        await _pause(math.fsum(duration or 0 for duration in durations))
        return 0

    async def _heartbeat(self, arguments: list[str]) -> int:
        every = _seconds(arguments[0]) if arguments else None
        if not every:
            return self._refuse("heartbeat: needs an interval in seconds")
        while True:
            self._write("stdout", " ".join(arguments[1:]) or "heartbeat")
            await _pause(max(every, _SHORTEST_ROUND))

    def _trap(self, arguments: list[str]) -> int:
        if len(arguments) < 2:
            return self._refuse("trap: needs a script and signals")
        for name in arguments[1:]:
            trapped = _signal(name)
            if trapped is None:  # EXIT and names of no signal
                continue
            if arguments[0] == "-":
                self.traps.pop(trapped, None)
            else:
                self.traps[trapped] = parse(arguments[0]) if arguments[0] else None
        return 0


async def _pause(seconds: float) -> None:
    if math.isinf(seconds):
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(seconds)


def _seconds(text: str) -> float | None:
    if text in ("inf", "infinity"):
        return math.inf
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def _signal(name: str) -> signal.Signals | None:
    try:
        return signal.Signals(int(name)) if name.isdecimal() else signal.Signals["SIG" + name.removeprefix("SIG")]
    except (KeyError, ValueError):
        return None
