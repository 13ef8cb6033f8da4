"""The command language of simulated containers: parsing, exit codes, traps; without a server."""

from __future__ import annotations

import asyncio
import signal

import pytest

from pvaffinity.local.cri.language import Unknown, command_line, parse
from pvaffinity.local.cri.process import Process
from pvaffinity.local.cri.shell import Shell

Lines = list[tuple[str, str]]


def run(argv: list[str], *, unknown_succeeds: bool = False, seconds: float = 5) -> tuple[int | None, Lines]:
    """Exit code (None if it still runs after ``seconds``) and output."""
    lines: Lines = []

    async def body() -> int | None:
        shell = Shell(lambda *line: lines.append(line), {"NAME": "value"}, "pod-1", unknown_succeeds=unknown_succeeds)
        try:
            async with asyncio.timeout(seconds):
                return await shell.run(command_line(argv))
        except TimeoutError:
            return None

    return asyncio.run(body()), lines


def script(text: str, *options: str) -> list[str]:
    return ["/bin/sh", *(options or ("-c",)), text]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["exit", "3"], 3),
        (["exit", "256"], 0),
        (["/bin/true"], 0),
        (["false"], 1),
        (["sleep", "0.01"], 0),
        (["sleep", "soon"], 1),
        (script("exit 3; exit 4"), 3),
        (script("false; exit"), 1),
        (script("false"), 1),
        (script("false && exit 5; exit 6"), 6),
        (script("false || exit 5; exit 6"), 5),
        (script("true && false || exit 7"), 7),
        (script("true\n# exit 2\nexit 4 # exit 5"), 4),
        (script("exec sleep 0; exit 9"), 0),
        (script("set -e; false; exit 9"), 1),
        (script("false; exit 9", "-ec"), 1),
        (script("false; exit 9", "-e", "-c"), 1),
        (script("set -e; false || true; set +e; false; exit 9"), 9),
        (script("set -e; false && true; exit 9"), 9),
        (script("set -e; true && false; exit 9"), 1),
        (script("exit $?"), 0),
        (script("false; exit $?"), 1),
        (script("while false; do exit 1; done; exit 2"), 2),
        (script("until true; do exit 1; done; exit 2"), 2),
        (script("while true; do exit 8; done"), 8),
        (script(""), 0),
    ],
)
def test_exit_code(argv: list[str], code: int) -> None:
    """A command ends with the exit code that a real shell would give it."""
    assert run(argv)[0] == code


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("echo one   two", "one two"),
        ("echo 'one   two;' \"$NAME ${NAME}\" '$NAME' \\$NAME", "one   two; value value $NAME $NAME"),
        ('echo "a\\"b\\n"', 'a"b\\n'),
        ("echo -n x", "x"),
        ("hostname", "pod-1"),
        ("echo [$NOT_SET]", "[]"),
    ],
)
def test_output(text: str, printed: str) -> None:
    """Quotes, variables and escapes come out as a real shell prints them."""
    assert run(script(text)) == (0, [("stdout", printed)])


@pytest.mark.parametrize(
    "text",
    [
        "echo a | cat",
        "echo a > /tmp/x; exit 1",
        "echo $(date)",
        'echo "`date`"',
        "if true; then exit 1; fi",
        "for i in 1 2; do echo $i; done",
        "sleep 1 & wait",
        "echo 'never closed",
        "echo ${NAME:-other}",
        "(exit 1)",
        "while true; do echo a | cat; done",
        "while true; do sleep 1",
        "done",
        "a ;; b",
        "&& true",
        "while true; do " * 5000,
    ],
)
def test_outside_the_language(text: str) -> None:
    """What is not understood, and all that follows it, is one unknown command; what stands before still runs."""
    statements = parse(f"echo before; {text}").statements
    assert len(statements) == 2
    assert isinstance(statements[1].first, Unknown)
    assert statements[1].first.text.strip() == text.strip()


@pytest.mark.parametrize(
    "argv", [["nginx", "-g", "daemon off;"], script("echo a | cat"), ["sh", "run.sh"], ["sleep", "inf"]]
)
def test_unknown_commands_run_until_stopped(argv: list[str]) -> None:
    """As a container's command, an unknown command does not end by itself."""
    assert run(argv, seconds=0.05) == (None, [])


@pytest.mark.parametrize("argv", [["cat", "/tmp/healthy"], script("echo a | cat"), script("test -f x && true")])
def test_unknown_commands_succeed_in_probes(argv: list[str]) -> None:
    """As a probe's or a hook's command, an unknown command succeeds at once."""
    assert run(argv, unknown_succeeds=True) == (0, [])


def test_heartbeat() -> None:
    """A heartbeat writes a line at once and then at every interval, until it is stopped."""
    code, lines = run(["heartbeat", "0.1", "still", "here"], seconds=0.35)
    assert code is None
    assert 3 <= len(lines) <= 4
    assert set(lines) == {("stdout", "still here")}


def test_an_empty_loop_does_not_hog_the_processor() -> None:
    """A loop that does nothing goes round at most ten times a second."""
    _, lines = run(script("while true; do echo x; done"), seconds=0.35)
    assert 2 <= len(lines) <= 4


def stop(argv: list[str], *signals: signal.Signals) -> tuple[int | None, list[str]]:
    """Exit code and output of a container's process that is sent signals once it has begun."""
    lines: list[str] = []

    async def body() -> int | None:
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        process = Process(argv, Shell(lambda _, line: lines.append(line), {}, "pod-1"), ended.set_result)
        await asyncio.sleep(0.01)
        for number in signals:
            process.deliver(number)
            await asyncio.sleep(0.01)
        return ended.result() if ended.done() else None

    return asyncio.run(body()), lines


@pytest.mark.parametrize(
    ("argv", "signals", "code"),
    [
        ([], [signal.SIGTERM], 0),
        (["/pause"], [signal.SIGTERM], 0),
        ([], [signal.SIGKILL], 137),
        (["nginx"], [signal.SIGTERM], 143),
        (["sleep", "inf"], [signal.SIGINT], 130),
        (["sleep", "inf"], [signal.SIGKILL], 137),
        (script("trap 'exit 4' TERM; sleep 9"), [signal.SIGTERM], 4),
        (script("trap 'exit 4' SIGTERM INT; sleep 9"), [signal.SIGINT], 4),
        (script("trap 'exit 4' 15; nginx"), [signal.SIGTERM], 4),
        (script("trap '' TERM; sleep 9"), [signal.SIGTERM], None),
        (script("trap '' TERM KILL; sleep 9"), [signal.SIGTERM, signal.SIGKILL], 137),
        (script("trap '' TERM; trap - TERM; sleep 9"), [signal.SIGTERM], 143),
        (script("trap true TERM; sleep 9"), [signal.SIGTERM], None),
        (script("exit 3"), [signal.SIGTERM, signal.SIGKILL], 3),
    ],
)
def test_signals(argv: list[str], signals: list[signal.Signals], code: int | None) -> None:
    """A stopped process ends with the exit code of its kind: 0, 128 + signal, or what its trap says; once."""
    assert stop(argv, *signals)[0] == code


def test_trap_output() -> None:
    """A trap's commands run before the process ends, and nothing of the interrupted script does after it."""
    code, lines = stop(script("trap 'echo bye; exit 0' TERM; sleep 0.02; sleep 9; echo no"), signal.SIGTERM)
    assert (code, lines) == (0, ["bye"])
