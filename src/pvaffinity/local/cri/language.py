"""Reads the command language of simulated containers: a small subset of the POSIX shell.

Understood: words with quotes, ``$NAME``, ``${NAME}`` and ``$?``; ``;``, newline, ``&&``, ``||``, comments; ``while``
and ``until`` loops. Everything else of the shell (pipes, redirections, ``&``, ``$(…)``, ``if``, ``for``, …) is outside
the language: the statement in which it stands *and all that follows* become one :class:`Unknown`. What commands do is
in :mod:`.shell`.
"""

from __future__ import annotations

__all__ = ["AndOr", "Command", "Loop", "Script", "Unknown", "Variable", "Word", "command_line", "parse"]

import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

_SHELLS = frozenset({"sh", "bash", "ash", "dash"})
_SHELL_OPTIONS = re.compile(r"-[a-z]*c")
_RESERVED = frozenset({"if", "for", "case", "select", "function", "{", "}", "!", "then", "else", "elif", "fi", "esac"})
_CLOSING = frozenset({"do", "done"})
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n|(?<![^\s;])\#[^\n]*)|(?P<operator>&&|\|\||;;|[;\n])|(?P<other>[&|<>()`])"""
    r"""|(?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s;&|<>()`'"\\])+)""",
    re.DOTALL,
)
_PIECE = re.compile(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"|\\(?P<escaped>.)|(?P<plain>[^'"\\]+)""", re.DOTALL
)
_EXPANSION = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*|\?)|\{(?P<braced>[A-Za-z_]\w*)\}|(?P<other>[({0-9@*#$!-]))|`")


@dataclasses.dataclass(frozen=True)
class Variable:
    """A part of a word that stands for the value of an environment variable, or of ``?``."""

    name: str


Word = tuple[str | Variable, ...]


@dataclasses.dataclass(frozen=True)
class Command:
    """A simple command: its name and its arguments, not yet expanded."""

    words: tuple[Word, ...]


@dataclasses.dataclass(frozen=True)
class Unknown:
    """Text outside the language, from the first statement that is not understood to the end."""

    text: str


@dataclasses.dataclass(frozen=True)
class Loop:
    """``while CONDITION; do BODY; done``; with ``until`` the loop goes on as long as the condition fails."""

    until: bool
    condition: Script
    body: Script


Node = Command | Unknown | Loop


@dataclasses.dataclass(frozen=True)
class AndOr:
    """``first && second || third``: the operator before a command says when it runs."""

    first: Node
    rest: tuple[tuple[str, Node], ...] = ()


@dataclasses.dataclass(frozen=True)
class Script:
    """Statements, one after the other; ``errexit`` is the shell's ``-e``."""

    statements: tuple[AndOr, ...]
    errexit: bool = False


class _OutsideError(Exception):
    """The text leaves the language here."""


def command_line(argv: Sequence[str]) -> Script:
    """What a container, a probe or a hook with this command runs: ``sh -c TEXT``, or one command with its arguments."""
    if argv and PurePosixPath(argv[0]).name in _SHELLS:
        options = list(itertools.takewhile(lambda word: word.startswith("-"), argv[1:]))
        script = argv[1 + len(options) : 2 + len(options)]
        if script and any(_SHELL_OPTIONS.fullmatch(option) for option in options):
            return dataclasses.replace(parse(script[0]), errexit=any("e" in option for option in options))
    return Script((AndOr(Command(tuple((word,) for word in argv))),)) if argv else Script(())


def parse(text: str) -> Script:
    """Read the text of a script; never fails, see :class:`Unknown`."""
    return _Parser(text).script(closing=frozenset(), top=True)


class _Parser:
    """Recursive descent over the tokens of one script."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []  # kind, text, offset
        end = 0
        for match in _TOKEN.finditer(text):
            if match.start() != end:
                break
            end = match.end()
            if match.lastgroup and match.lastgroup != "blank":
                self._tokens.append((match.lastgroup, match.group(), match.start()))
        if end != len(text):  # such as a quote that is never closed
            self._tokens.append(("other", text[end:], end))
        self._at = 0

    def script(self, closing: frozenset[str], *, top: bool = False) -> Script:
        """Statements up to a reserved word of ``closing``, which is taken, or to the end of the text."""
        statements: list[AndOr] = []
        while True:
            while self._operator(";", "\n"):
                self._at += 1
            if self._at == len(self._tokens):
                if closing:
                    raise _OutsideError
                return Script(tuple(statements))
            kind, text, offset = self._tokens[self._at]
            if kind == "word" and text in closing:
                self._at += 1
                return Script(tuple(statements))
            try:
                statements.append(self._and_or())
            except (_OutsideError, RecursionError):  # the latter: loops in loops in loops …
                if not top:
                    raise
                return Script((*statements, AndOr(Unknown(self._text[offset:]))))

    def _operator(self, *operators: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at][:2] in {("operator", o) for o in operators}

    def _and_or(self) -> AndOr:
        first = self._command()
        rest: list[tuple[str, Node]] = []
        while self._operator("&&", "||"):
            operator = self._tokens[self._at][1]
            self._at += 1
            while self._operator("\n"):
                self._at += 1
            rest.append((operator, self._command()))
        if self._at < len(self._tokens) and not self._operator(";", "\n"):
            raise _OutsideError
        return AndOr(first, tuple(rest))

    def _command(self) -> Node:
        words: list[Word] = []
        while self._at < len(self._tokens) and self._tokens[self._at][0] == "word":
            text = self._tokens[self._at][1]
            if not words and text in _RESERVED | _CLOSING:
                raise _OutsideError
            self._at += 1
            if not words and text in ("while", "until"):
                return Loop(text == "until", self.script(frozenset({"do"})), self.script(frozenset({"done"})))
            words.append(_word(text))
        if not words:
            raise _OutsideError
        return Command(tuple(words))


def _word(text: str) -> Word:
    """Take the quotes off a word and find its variables."""
    parts: list[str | Variable] = []
    for piece in _PIECE.finditer(text):
        if piece["single"] is not None:
            parts.append(piece["single"])
        elif piece["escaped"] is not None:
            parts.append(piece["escaped"])
        elif piece["double"] is not None:
            for index, fragment in enumerate(re.split(r"\\([\"\\$`\n])", piece["double"])):
                parts += (fragment,) if index % 2 else _expandable(fragment)
        else:
            parts += _expandable(piece["plain"])
    return tuple(parts)


def _expandable(text: str) -> list[str | Variable]:
    parts: list[str | Variable] = []
    end = 0
    for match in _EXPANSION.finditer(text):
        name = match["name"] or match["braced"]
        if not name:
            raise _OutsideError
        parts += [text[end : match.start()], Variable(name)]
        end = match.end()
    return [*parts, text[end:]]
