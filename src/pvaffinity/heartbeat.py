"""A container that writes to its volume many times a second, and the judging of what it wrote.

Each line of the file is one *beat*: a number, one higher than the line before, and the seconds since the node booted.
The container opens, appends to and closes the file anew for each beat, so that every beat goes through the volume. A
*control* does the same on the same node, without the volume: where it stood still as well, the machine did, and nothing
can be said of the volume.

    finding = judge(written, control, since=120, least=40)
    assert finding.verdict == "unbroken", finding.why
"""

from __future__ import annotations

__all__ = ["END", "FILE", "Beat", "Finding", "control", "is_beating", "judge", "parse", "reader", "tail", "writer"]

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pvaffinity.budgets import BUDGETS, Budget
from pvaffinity.conditions import Condition, Look, is_running
from pvaffinity.manifests import SHELL_IMAGE
from pvaffinity.objects import Obj

FILE = "heartbeat"
"""The file's name, in the directory that is written to."""

_PERIOD = "0.05"  # seconds of pause between two beats
_LINE = re.compile(r"(\d+) (\d+\.\d\d)\n")
_NO_IMAGE = ("ErrImageNeverPull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName")

END = ("/bin/sh", "-c", "kill 1")
"""A command for a container of :func:`writer` or :func:`control`: have it end."""

# A shell with process id 1 ignores SIGTERM unless told what to do.
_WRITE = f"""
end() {{ test -z "$REMOVE" || rm -r "$REMOVE" || exit 1; exit 0; }}
trap end TERM
mkdir -p "$@" || exit 1
n=0
while n=$((n + 1)); do
  read -r up _ </proc/uptime
  echo "$n $up" >>"$1/{FILE}" || exit 1
  sleep {_PERIOD}
done
"""

_TAIL = """
read -r up _ </proc/uptime
end=$((${up%%.*} + $3))
until tail -n 1 "$1" 2>/dev/null | { read -r n _; test "${n:-0}" -ge "$2"; }; do
  read -r up _ </proc/uptime
  test "${up%%.*}" -lt "$end" || break
  sleep 0.1
done
cat "$1"
"""


@dataclass(frozen=True)
class Beat:
    """One line: its number, from 1, and when it was written, in seconds (hundredths) since the node booted."""

    number: int
    at: float


@dataclass(frozen=True)
class Finding:
    """What the beats say.

    Attributes:
        verdict: ``not judged`` where the machine stood still for so long that the rest of a pause is within the
            budget, or no beats of the control say that it did not.
        why: in one sentence, with numbers.
    """

    verdict: Literal["unbroken", "broken", "not judged"]
    why: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.why}"


def writer(mount: str) -> Obj:
    """A container that writes beats to a volume of its pod.

    Args:
        mount: the name of the pod's volume, which is mounted below ``/volumes``.
    """
    return _container("writer", mount, "/bin/sh", "-c", _WRITE, "sh", f"/volumes/{mount}")


def control(mount: str, base: str, directory: str, *more: str) -> Obj:
    """A container that makes directories, writes beats to the first of them, and when told to end removes them all.

    Args:
        mount: as of :func:`writer`.
        base: a directory below the mount, removed at the end; an error of the container if that fails.
        directory: below the base.
        more: others there.
    """
    top = f"/volumes/{mount}/{base}"
    paths = [f"{top}/{path}" for path in (directory, *more)]
    container = _container("control", mount, "/bin/sh", "-c", _WRITE, "sh", *paths)
    return {**container, "env": [{"name": "REMOVE", "value": top}]}


def reader(mount: str) -> Obj:
    """A container that prints the beats another one wrote to this volume, and ends."""
    return _container("reader", mount, "cat", f"/volumes/{mount}/{FILE}")


def tail(path: str, least: int, seconds: int) -> tuple[str, ...]:
    """A command for a writer's container: print the file once it has ``least`` beats, or after so many seconds."""
    return "/bin/sh", "-c", _TAIL, "sh", path, str(least), str(seconds)


def parse(text: str) -> tuple[Beat, ...]:
    """The beats of a file.

    Raises:
        ValueError: a line is damaged, a number is not the next one, or time went backwards.
    """
    beats: list[Beat] = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is no beat: {line[:60]!r}")
        if int(match[1]) != number:
            raise ValueError(f"line {number} is beat {match[1]}: lines are lost, or the container began anew")
        if beats and float(match[2]) < beats[-1].at:
            raise ValueError(f"beat {number} was written at {match[2]} s, before the one before it")
        beats.append(Beat(number, float(match[2])))
    return tuple(beats)


def damage(text: str) -> str:
    """What is wrong with a file of beats, see :func:`parse`; "" for nothing."""
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


def judge(written: str, control: str, *, since: int, least: int, budget: Budget = BUDGETS["heartbeat"]) -> Finding:
    """Whether beats went on all the time.

    A time without beats is *broken* if it exceeds the budget even without the time in which the control was silent too:
    only for that long the machine stood still. So are fewer beats than there had been, and too few of them while the
    control wrote enough.

    Args:
        written: the file in the volume, read *after* the control's.
        control: the file beside it, whose first beat is older than the volume's first.
        since: the number of the newest beat that may be older than what was done to the volume.
        least: how many beats there must be after that one.
        budget: the longest time between two beats.
    """
    if wrong := damage(written):
        return Finding("broken", wrong)
    beats = parse(written)
    if len(beats) < since:
        return Finding("broken", f"only {len(beats)} beats are left of {since} that had been written")
    if wrong := damage(control):
        return Finding("not judged", f"the control: {wrong}")
    others = parse(control)
    if not others or (beats and others[0].at > beats[0].at):
        return Finding("not judged", "the control has no beats, or only later ones")
    gaps = _gaps([*(beats or others[:1]), Beat(0, others[-1].at)], others, budget.seconds)
    still = [_stood_still(others, begin, end, budget.seconds / 2) for begin, end in gaps]
    for (begin, end), silent in zip(gaps, still, strict=True):
        if end - begin - silent > budget.seconds:
            rest = f"{end - begin - silent:.2f} s of them" if silent else "all the time"
            return Finding("broken", f"no beat for {end - begin:.2f} s; the control's went on {rest} ({budget})")
    if gaps:
        (begin, end), silent = gaps[0], still[0]
        return Finding("not judged", f"the machine stood still for {silent:.2f} of {end - begin:.2f} s without a beat")
    after = len(beats) - since
    if after < least:
        begin = beats[since - 1].at if since else others[0].at
        theirs = sum(other.at > begin for other in others)
        if theirs >= least:
            return Finding("broken", f"only {after} of {least} beats since the update, of the control {theirs}")
        return Finding("not judged", f"only {after} of {least} beats since the update, of the control {theirs}")
    return Finding(
        "unbroken",
        f"{len(beats)} beats, {after} of them since the update; longest interval {_longest(beats):.2f} s, "
        f"of the control {_longest(others):.2f} s",
    )


def _gaps(beats: Sequence[Beat], others: Sequence[Beat], seconds: float) -> list[tuple[float, float]]:
    """Where beats are missing, as far as the control can tell: until its last beat."""
    last = others[-1].at
    bounds = [(a.at, min(b.at, last)) for a, b in pairwise(beats)]
    return [(begin, end) for begin, end in bounds if end - begin > seconds]


def _stood_still(others: Sequence[Beat], begin: float, end: float, seconds: float) -> float:
    """How long, between two moments, the control was silent: in those of its intervals that are longer than usual."""
    silences = ((max(a.at, begin), min(b.at, end)) for a, b in pairwise(others) if b.at - a.at > seconds)
    return sum(max(0.0, until - since) for since, until in silences)


def _longest(beats: Sequence[Beat]) -> float:
    return max((b.at - a.at for a, b in pairwise(beats)), default=0.0)


def _container(name: str, mount: str, *command: str) -> Obj:
    mounts = [{"name": mount, "mountPath": f"/volumes/{mount}"}]
    return {"name": name, "image": SHELL_IMAGE, "command": list(command), "volumeMounts": mounts}


def _beating(obj: Obj | None) -> Look:
    for container in ((obj or {}).get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _NO_IMAGE:
            return Look("terminal", f"{waiting['reason']}: {waiting.get('message', '')}")
    return is_running(obj)


is_beating = Condition("running", _beating, "start")
"""A pod that runs; an image that cannot be had is terminal."""
