"""``pvaffinity up``: which provider it takes for which release, and what it refuses before it makes anything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pvaffinity import leftovers, providers
from pvaffinity.cli.up import up
from pvaffinity.errors import UserError

MADE = UserError("so far and no further", "")


class _Maker:
    """A provider that goes no further than its check."""

    def check(self, spec: Any, progress: Any) -> None:
        raise MADE


def started(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[str, BaseException | None, list[Any]]:
    """What the command says, how it ends, and what the choice of a provider was asked."""
    asked: list[Any] = []

    def choose(wanted: str, release: Any = None, **_: Any) -> providers.Choice:
        asked.append((wanted, release.minor))
        return providers.Choice("local", "because")

    monkeypatch.setattr(providers, "choose", choose)
    monkeypatch.setattr(providers, "load", lambda *_, **__: _Maker())
    run = CliRunner().invoke(up, arguments)
    return run.output, run.exception, asked


def test_the_provider_is_chosen_for_the_release_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` looks for a node image of the release that was asked for; release, provider and reason are told."""
    output, error, asked = started(monkeypatch, "--kubernetes-version", "1.35")
    assert error is MADE
    assert asked == [("auto", "1.35")]
    assert "Kubernetes 1.35.4 from provider local: because" in output


def test_an_option_that_one_provider_heeds_chooses_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Who names binaries or a node image, and no provider, gets the one that uses them."""
    assert "provider local: --binaries is for it" in started(monkeypatch, "--binaries", str(tmp_path))[0]
    assert "provider kind: --kind-image is for it" in started(monkeypatch, "--kind-image", "x")[0]


@pytest.mark.parametrize(
    "arguments,told",
    [
        (["--provider", "kind", "--binaries", "."], "--binaries is for the provider local"),
        (["--provider", "local", "--kind-image", "x"], "--kind-image is for the provider kind"),
        (["--binaries", ".", "--kind-image", "x"], "no provider heeds"),
        (["--kind-image", ""], "--kind-image is empty"),
        (["--provider", "existing"], "is up already"),
        (["--kubernetes-version", ""], "unknown Kubernetes version ''"),
        (["--cluster-config", "gate-of"], "did you mean gate-off?"),
        (["--config", "gate-of"], "did you mean gate-off?"),
    ],
)
def test_what_cannot_be_meant_is_refused(monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str) -> None:
    """Options that contradict each other or are empty are refused; the suite's names of options work here, too."""
    error = started(monkeypatch, *arguments)[1]
    assert isinstance(error, UserError)
    assert told in error.what


def test_the_directory_is_claimed_before_anything_that_may_take_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While binaries are still being built, ``clean`` sees whose the cluster is; where nothing came of it, it goes."""
    seen: list[str] = []

    def create(self: Any, spec: Any, name: str, directory: Path, *_: Any) -> None:
        seen.append((directory / "owner.json").read_text(encoding="utf-8"))
        raise MADE

    monkeypatch.setattr(_Maker, "check", lambda *_: None)
    monkeypatch.setattr(_Maker, "create", create, raising=False)
    monkeypatch.setattr(leftovers, "clusters_dir", lambda: tmp_path)
    assert started(monkeypatch)[1] is MADE
    assert [json.loads(text)["pid"] for text in seen] == [os.getpid()]
    assert list(tmp_path.iterdir()) == []
