"""What keeps a binary from being built is said in one line, as early as it can be known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pvaffinity.errors import UserError
from pvaffinity.local import gobuild
from pvaffinity.local.binaries import ensure, items
from pvaffinity.local.bincache import Cache
from pvaffinity.local.goprocess import first_error
from pvaffinity.versions import load_versions
from selftests.faked_go import FakeGo

RELEASE = load_versions().newest


def test_a_failing_build_shows_its_first_error(fake_go: FakeGo) -> None:
    """Of a long log the user reads the line that matters, and where the rest is."""
    (fake_go.root / "fail").write_text(
        "go: downloading k8s.io/utils v0.1.0\nclient.go:31:2: k8s.io/utils@v0.1.0: reading …zip: 403 Forbidden\n"
        "\tserver response: not available.\n" + "another.go:1:1: noise\n" * 200
    )

    with pytest.raises(UserError) as caught:
        ensure(RELEASE)

    assert "k8s.io/utils@v0.1.0: reading …zip: 403 Forbidden server response: not available." in caught.value.what
    assert "noise" not in str(caught.value)
    log = Path(caught.value.detail.removeprefix("whole log: "))
    assert log.read_text().count("noise") == 200
    assert Cache().find(items(RELEASE)[0]).state == "missing"


def test_a_module_that_cannot_be_had_is_named(fake_go: FakeGo) -> None:
    """The error of the module download is what the user reads."""
    (fake_go.root / "download.json").write_text(json.dumps({"Error": "k8s.io/kubernetes@v9: reading …: 404 Not Found"}))
    with pytest.raises(UserError, match=r"k8s.io/kubernetes@v9: reading …: 404"):
        ensure(RELEASE)


def test_a_go_too_old_to_fetch_its_successor_is_refused(fake_go: FakeGo) -> None:
    """Go before 1.21 cannot fetch the toolchain that is wanted, and is named."""
    (fake_go.root / "version").write_text("go1.20.14\n")
    with pytest.raises(UserError, match=r"go1\.20\.14 is too old"):
        ensure(RELEASE)


def test_a_pre_release_is_not_built(fake_go: FakeGo) -> None:
    """`next` is not built unasked, since not all its modules are published; the user learns what to do instead."""
    ahead = load_versions().next
    assert ahead
    with pytest.raises(UserError, match="pre-releases are not built") as caught:
        ensure(ahead)
    assert "name a directory" in caught.value.fix
    assert not fake_go.builds()


def test_a_disk_without_room_is_noticed_before_the_build(fake_go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user reads how much is needed, before minutes are spent."""
    usage = shutil.disk_usage(fake_go.root)
    monkeypatch.setattr(gobuild.shutil, "disk_usage", lambda _: usage._replace(free=1_000_000_000))
    with pytest.raises(UserError, match=r"no space left .*; 9\.0 GB are needed"):
        ensure(RELEASE)
    assert not fake_go.builds()


def test_a_disk_that_fills_up_is_named(fake_go: FakeGo) -> None:
    """A build that dies of a full disk is told as such, and ends the search for other sources."""
    (fake_go.root / "fail").write_text("compile: writing output: write $WORK/b1/_pkg_.a: no space left on device\n")
    with pytest.raises(UserError, match="no space left on the disk"):
        ensure(RELEASE)


def test_a_cache_that_cannot_be_written_is_named(fake_go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only cache is one line what and one line what to do."""
    monkeypatch.setenv("PVAFFINITY_CACHE", "/sys/pvaffinity")
    with pytest.raises(UserError, match="the cache cannot be written") as caught:
        ensure(RELEASE)
    assert "PVAFFINITY_CACHE" in caught.value.fix


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("$ go build\ngo: downloading a v1\nk8s.io/x\n# k8s.io/y\ny.go:1:2: undefined: z\n", "y.go:1:2: undefined: z"),
        ("go: a@v1: reading x: 403\n\tserver says no\n", "go: a@v1: reading x: 403 server says no"),
        ("", "no message"),
    ],
)
def test_first_error(log: str, error: str) -> None:
    """Downloads, package names and echoed commands are no errors."""
    assert first_error(log) == error
