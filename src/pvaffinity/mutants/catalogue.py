"""The catalogue: every deliberate break, and every harmless change, as data in ``mutants/COMPONENT.toml``."""

from __future__ import annotations

__all__ = ["ALL", "COMPONENTS", "SAMPLE", "UNJUDGED", "Mutant", "chosen", "load", "sample"]

import hashlib
import itertools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pvaffinity.behaviours import BEHAVIOURS
from pvaffinity.errors import UserError, did_you_mean
from pvaffinity.shape import ShapeError, shaped

COMPONENTS = ("kube-apiserver", "kube-scheduler", "kubelet", "kube-controller-manager")
"""What can be altered: each has one file."""
ALL = "all"
"""The value of ``checks`` that leaves out nothing but what takes minutes."""
SAMPLE = "sample"
"""What is said of the checks that run where ``checks`` is empty."""
UNJUDGED = "not judged"
"""The key of ``also`` that explains checks which could not be judged."""
_BEHAVIOURS = tuple(behaviour.id for behaviour in BEHAVIOURS)


@dataclass(frozen=True)
class Mutant:
    """One change of one file of Kubernetes.

    Attributes:
        name: unique, what the table and ``--only`` call it.
        does: what is different, in one sentence.
        file: the Go file, from its module's path on: ``k8s.io/kubernetes/pkg/…``, ``k8s.io/component-helpers/…``.
        find: stands exactly once in that file.
        put: what stands there instead.
        breaks: the behaviours (:mod:`pvaffinity.behaviours`) whose promise it breaks; none where it is harmless.
        harmless: every promise is kept, so that nothing may turn red.
        also: why checks of another behaviour turn red as well, or are ``not judged``, by behaviour.
        survives: why the suite cannot see it; empty where it must.
        checks: ``all``, or a ``-k`` expression of pytest; empty for the sample that suits most.
        without: a ``-k`` expression of checks to leave out: they would wait for a minute each to say the same again.
        component: the binary that is altered.
    """

    name: str
    does: str
    file: str
    find: str
    put: str
    breaks: tuple[str, ...] = ()
    harmless: bool = False
    also: Mapping[str, str] = field(default_factory=dict, hash=False)
    survives: str = ""
    checks: str = ""
    without: str = ""
    component: str = ""

    @property
    def module(self) -> str:
        """The Go module the file is of, such as ``k8s.io/kubernetes``."""
        return "/".join(self.file.split("/")[:2])

    @property
    def inside(self) -> str:
        """The file's path inside its module."""
        return "/".join(self.file.split("/")[2:])

    def key(self, version: str) -> str:
        """What its binary is remembered by: another text, file or release is another binary."""
        parts = (version, self.component, self.file, self.find, self.put)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def applied(self, text: str, version: str) -> str:
        """The file's text, altered.

        Raises:
            UserError: the text to find is not there, or more than once: it does not fit this release.
        """
        found = text.count(self.find)
        if found != 1:
            raise UserError(
                f"mutant {self.name} does not fit Kubernetes {version}: "
                f"its text stands {found} times in {self.file}, not once",
                f"look at the file of that release and correct 'find' in mutants/{self.component}.toml",
            )
        return text.replace(self.find, self.put)


def load(directory: Path) -> tuple[Mutant, ...]:
    """Read the catalogue.

    Raises:
        UserError: a file is missing or malformed, or says what cannot be.
    """
    mutants: list[Mutant] = []
    for component in COMPONENTS:
        path = directory / f"{component}.toml"
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
            entries = shaped(list[Mutant], [{**each, "component": component} for each in document.pop("mutant", [])])
            wrong = [f"{key} is unknown" for key in document] or [text for each in entries for text in _wrong(each)]
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}", "restore it: git checkout mutants") from error
        except (ValueError, TypeError, ShapeError) as error:
            wrong = [str(error)]
        if wrong:
            raise UserError(f"{path}: {wrong[0]}", f"correct it: {path}")
        mutants += entries
    names = [mutant.name for mutant in mutants]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{directory}: there are two mutants {twice[0]}", "rename one of them")
    return tuple(mutants)


def _wrong(mutant: Mutant) -> Iterable[str]:
    """What cannot be in one entry."""
    for name in (*mutant.breaks, *(key for key in mutant.also if key != UNJUDGED)):
        if name not in _BEHAVIOURS:
            yield f"{mutant.name}: unknown behaviour {name!r}{did_you_mean(name, _BEHAVIOURS)}"
    if mutant.harmless == bool(mutant.breaks):
        yield f"{mutant.name} must either break a promise (breaks) or be harmless"
    if mutant.harmless and (mutant.survives or mutant.also):
        yield f"{mutant.name} is harmless: nothing may turn red, and nothing can survive"
    if mutant.find == mutant.put:
        yield f"{mutant.name} changes nothing"


def chosen(mutants: Sequence[Mutant], names: Sequence[str]) -> tuple[Mutant, ...]:
    """The mutants of these names or components, in the catalogue's order; all where none is named.

    Raises:
        UserError: there is no such mutant.
    """
    known = [*COMPONENTS, *(mutant.name for mutant in mutants)]
    for name in names:
        if name not in known:
            raise UserError(
                f"no mutant and no component {name!r}{did_you_mean(name, known)}", "./run mutants --list names them all"
            )
    return tuple(mutant for mutant in mutants if not names or mutant.name in names or mutant.component in names)


def sample(mutants: Sequence[Mutant], number: int) -> tuple[Mutant, ...]:
    """So many of them, the same ones every time: in turn a break of each component and a harmless change.

    The first entries of each file go first.
    """
    groups = [[m for m in mutants if m.component == name and not m.harmless] for name in COMPONENTS]
    groups.append([m for m in mutants if m.harmless])
    turns = itertools.zip_longest(*groups)
    return tuple(itertools.islice((m for turn in turns for m in turn if m is not None), number))
