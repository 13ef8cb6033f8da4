"""Builds of binaries, with a stand-in for go that can be slow, fail and be killed; and one real build, if asked for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pvaffinity.errors import UserError
from pvaffinity.local import bincache, gobuild
from pvaffinity.local.binaries import COMPONENTS, ensure, items
from pvaffinity.local.bincache import Cache
from pvaffinity.local.gobuild import kubernetes_go_mod
from pvaffinity.local.goprocess import first_error
from pvaffinity.versions import load_versions

RELEASE = load_versions().newest
GO = r"""#!/bin/sh
F=@FAKE@
echo "$*" >> $F/calls
case "$1 $2" in
"env GOVERSION") cat $F/version;;
"env -json") echo "{\"GOCACHE\": \"$F/gocache\", \"GOMODCACHE\": \"$F/mod\"}";;
"mod download") cat $F/download.json;;
build*)
  env > $F/env
  echo "go: downloading example.com/a v1.0.0" >&2
  echo "internal/abi" >&2
  if [ -e $F/fail ]; then cat $F/fail >&2; exit 1; fi
  if [ -e $F/hold ]; then sh -c "while [ -e $F/hold ]; do sleep 0.02; done" & echo $! > $F/child; wait; fi
  while [ "$1" != -o ]; do shift; done
  v=$(sed -n 's/^require [^ ]* v//p' go.mod)
  printf '#!/bin/sh\necho Version: v%s\nexit 0\n' "$v" > $2;;
esac
"""


class Fake:
    """A directory that steers the stand-in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        module = root / "module"
        module.mkdir(parents=True)
        (module / "go.sum").write_text("")
        (root / "go.mod").write_text("module k8s.io/kubernetes\n\ngo 1.26.0\n")
        (root / "download.json").write_text(json.dumps({"Dir": str(module), "GoMod": str(root / "go.mod")}))
        (root / "version").write_text("go1.26.1\n")
        (root / "bin").mkdir()
        (root / "bin/go").write_text(GO.replace("@FAKE@", str(root)))
        (root / "bin/go").chmod(0o755)

    def builds(self) -> list[str]:
        """What was built, in order."""
        calls = (self.root / "calls").read_text().splitlines() if (self.root / "calls").exists() else []
        return [c.split()[-1].rsplit("/", 1)[-1] for c in calls if c.startswith("build")]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    fake = Fake(tmp_path / "fake")
    monkeypatch.setenv("PATH", f"{fake.root / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PVAFFINITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PVAFFINITY_DOWNLOADS", "off")
    yield fake
    (fake.root / "hold").unlink(missing_ok=True)


def start() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from pvaffinity.cli import main; main()", "binaries", "fetch"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            if condition():
                return True
        time.sleep(0.02)
    return False


def gone(file: Path) -> Callable[[], bool]:
    pid = int(file.read_text())
    return lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_all_six_are_built_once(fake: Fake) -> None:
    """What is missing is built, in order, with lines that say which of how many; a second call builds nothing."""
    lines: list[str] = []

    got = ensure(RELEASE, progress=lines.append, every=0.0)

    assert len(fake.builds()) == 6
    assert any("kubelet" in line and "(4 of 6)" in line for line in lines)
    assert any("1 packages compiled" in line for line in lines)
    assert ensure(RELEASE) == got
    assert len(fake.builds()) == 6
    assert not list((Cache().root / ".work").iterdir())


def test_etcd_is_shared(fake: Fake) -> None:
    """A second Kubernetes version builds its five binaries and takes the etcd that is there."""
    ensure(RELEASE)

    ensure(load_versions().find("1.36"))

    assert len(fake.builds()) == 11


def test_the_users_go_settings_do_no_harm(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """GOFLAGS, GOWORK and the like of the user are overridden, proxy and cache settings are kept."""
    for name, value in {
        "GOFLAGS": "-mod=vendor -race",
        "GOWORK": "/nowhere/go.work",
        "GOOS": "plan9",
        "CGO_ENABLED": "1",
        "GOPROXY": "https://proxy.example",
        "GOPRIVATE": "corp.example",
    }.items():
        monkeypatch.setenv(name, value)

    ensure(RELEASE)

    env = (fake.root / "env").read_text().splitlines()
    assert {"GOFLAGS=-mod=mod", "GOWORK=off", "GOOS=linux", "CGO_ENABLED=0", "GOTOOLCHAIN=auto"} <= set(env)
    assert {"GOPROXY=https://proxy.example", "GOPRIVATE=corp.example"} <= set(env)


def test_a_failing_build_shows_its_first_error(fake: Fake) -> None:
    """Of a long log the user reads the line that matters, and where the rest is."""
    (fake.root / "fail").write_text(
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


def test_a_module_that_cannot_be_had_is_named(fake: Fake) -> None:
    """The error of the module download is what the user reads."""
    (fake.root / "download.json").write_text(json.dumps({"Error": "k8s.io/kubernetes@v9: reading …: 404 Not Found"}))
    with pytest.raises(UserError, match=r"k8s.io/kubernetes@v9: reading …: 404"):
        ensure(RELEASE)


def test_no_go_and_no_download_names_both_ways_out(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Go and downloads the one error says what is missing and each thing that would help."""
    monkeypatch.setenv("PATH", str(fake.root / "empty"))
    monkeypatch.setattr(gobuild, "_GO_PLACES", ())
    with pytest.raises(UserError, match=r"downloads are switched off; there is no Go") as caught:
        ensure(RELEASE)
    assert all(way in caught.value.fix for way in ("install Go", "PVAFFINITY_DOWNLOADS", "directory"))
    assert len(str(caught.value).splitlines()) == 2


def test_a_go_too_old_to_fetch_its_successor_is_refused(fake: Fake) -> None:
    """Go before 1.21 cannot fetch the toolchain that is wanted, and is named."""
    (fake.root / "version").write_text("go1.20.14\n")
    with pytest.raises(UserError, match=r"go1\.20\.14 is too old"):
        ensure(RELEASE)


def test_a_pre_release_is_not_built(fake: Fake) -> None:
    """`next` is not built unasked, since not all its modules are published; the user learns what to do instead."""
    ahead = load_versions().next
    assert ahead
    with pytest.raises(UserError, match="pre-releases are not built") as caught:
        ensure(ahead)
    assert "name a directory" in caught.value.fix
    assert not fake.builds()


def test_a_disk_without_room_is_noticed_before_the_build(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user reads how much is needed, before minutes are spent."""
    usage = shutil.disk_usage(fake.root)
    monkeypatch.setattr(gobuild.shutil, "disk_usage", lambda _: usage._replace(free=1_000_000_000))
    with pytest.raises(UserError, match=r"no space left .*; 6\.7 GB are needed"):
        ensure(RELEASE)
    assert not fake.builds()


def test_a_disk_that_fills_up_is_named(fake: Fake) -> None:
    """A build that dies of a full disk is told as such, and ends the search for other sources."""
    (fake.root / "fail").write_text("compile: writing output: write $WORK/b1/_pkg_.a: no space left on device\n")
    with pytest.raises(UserError, match="no space left on the disk"):
        ensure(RELEASE)


def test_two_at_once_build_once(fake: Fake) -> None:
    """A second process waits for the first, says for whom, and takes its results."""
    (fake.root / "hold").touch()
    first = start()
    assert eventually(lambda: bool(fake.builds()))
    lines: list[str] = []
    second = threading.Thread(target=lambda: ensure(RELEASE, progress=lines.append, every=0.1))
    second.start()
    assert eventually(lambda: any(f"waiting for process {first.pid}" in line for line in lines))
    (fake.root / "hold").unlink()

    output = first.communicate(timeout=120)[0]
    second.join(120)

    assert first.returncode == 0, output
    assert sorted(fake.builds()) == sorted([*COMPONENTS[:-1], "v3"])


def test_ctrl_c_ends_the_build_and_cleans_up(fake: Fake) -> None:
    """After Ctrl-C no child of the build runs, nothing is left in the work directory, and the exit code is 130."""
    (fake.root / "hold").touch()
    process = start()
    assert eventually((fake.root / "child").exists)
    child = gone(fake.root / "child")

    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=120)[0]

    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert eventually(child)
    assert not list((Cache().root / ".work").iterdir())


def test_a_killed_builder_leaves_nothing_that_counts(fake: Fake) -> None:
    """After kill -9 in mid-build go ends by itself, and the next run builds, and removes what was left."""
    (fake.root / "hold").touch()
    process = start()
    assert eventually((fake.root / "child").exists)
    go = psutil.Process(process.pid).children()[0]
    process.kill()
    process.communicate(timeout=120)

    assert eventually(lambda: not go.is_running() or go.status() == psutil.STATUS_ZOMBIE)
    assert list((Cache().root / ".work").iterdir())
    assert Cache().find(items(RELEASE)[0]).state == "missing"
    (fake.root / "hold").unlink()
    assert ensure(RELEASE).kubectl.exists()
    assert not list((Cache().root / ".work").iterdir())


def test_a_cache_that_cannot_be_written_is_named(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only cache is one line what and one line what to do."""
    monkeypatch.setenv("PVAFFINITY_CACHE", "/sys/pvaffinity")
    with pytest.raises(UserError, match="the cache cannot be written") as caught:
        ensure(RELEASE)
    assert "PVAFFINITY_CACHE" in caught.value.fix


def test_a_full_cache_needs_no_writing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cached whole is used from a cache that cannot be written."""
    got = ensure(RELEASE)
    monkeypatch.setattr(bincache.FileLock, "acquire", lambda *_a, **_k: pytest.fail("the cache was locked"))
    monkeypatch.setattr(bincache, "_sync", lambda _: pytest.fail("the cache was written"))
    assert ensure(RELEASE) == got


THEIRS = """module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
\texample.com/a v1.2.3
\tk8s.io/api v0.0.0
)

replace (
\texample.com/b => example.com/c v1.0.0
\tk8s.io/api => ./staging/src/k8s.io/api
)
"""


def test_staging_modules_are_replaced_and_no_others() -> None:
    """Staging modules get the version that belongs to the release; other replacements are taken over."""
    assert kubernetes_go_mod(THEIRS, "1.34.4").splitlines() == [
        "module build",
        "go 1.24.0",
        "godebug default=go1.24",
        "require k8s.io/kubernetes v1.34.4",
        "replace k8s.io/api => k8s.io/api v0.34.4",
        "replace example.com/b => example.com/c v1.0.0",
    ]


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


@pytest.mark.slow
@pytest.mark.skipif("PVAFFINITY_TEST_BUILD" not in os.environ, reason="takes minutes: set PVAFFINITY_TEST_BUILD=1")
def test_a_real_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest release is built from published modules, and each binary says it is that version."""
    monkeypatch.setenv("PVAFFINITY_CACHE", str(tmp_path))
    got = ensure(RELEASE, sources=("build",))
    for name in COMPONENTS[:-2]:
        assert RELEASE.version in subprocess.run([got.path(name), "--version"], capture_output=True, text=True).stdout
