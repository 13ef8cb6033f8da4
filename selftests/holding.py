"""Processes that take a turn, as :mod:`pvaffinity.turns` gives it, and hold it until they are told to go on."""

import contextlib
import multiprocessing

from pvaffinity import turns


def _hold(directory, take, pipe):
    with getattr(turns, take)(directory):
        pipe.send("in")
        pipe.recv()
    pipe.send("out")


class Holder:
    """A process that wants a turn."""

    def __init__(self, directory, take):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_hold, args=(directory, take, theirs))
        self.process.start()

    def has_it(self, seconds):
        """Whether it says within so many seconds that it has its turn."""
        return self.pipe.poll(seconds) and self.pipe.recv() == "in"

    def done(self):
        """Let it give its turn back."""
        self.pipe.send("go on")
        assert self.pipe.recv() == "out"
        self.process.join(10)


@contextlib.contextmanager
def holders(directory):
    """Starts such processes, ``start("shared")`` or ``start("alone")``; they do not outlive the test."""
    made = []

    def start(take):
        made.append(Holder(directory, take))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.join()
