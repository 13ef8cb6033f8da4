"""Warnings of selftests are errors. Those that start a cluster can be left out with -m "not cluster"."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest


def pytest_configure():
    """Let children be interrupted, also where a shell's ``&`` or nohup has told this process to ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Make every warning of a selftest an error."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)


@pytest.fixture
def supervised():
    """Makes supervisors over fake daemons; whatever is left of them is ended."""
    from selftests.supervised import Supervised

    made = []
    root = Path(tempfile.mkdtemp(prefix="pvs-"))  # short: sockets lie in it

    def make(scripts, **spec):
        made.append(Supervised(root / str(len(made)), scripts, **spec))
        return made[-1]

    yield make
    for each in made:
        each.close()
    shutil.rmtree(root)


@pytest.fixture
def own_run(monkeypatch):
    """A run directory of the test's own: clusters that others are just making on this machine are not its business."""
    with tempfile.TemporaryDirectory(prefix="pvr-") as directory:  # short: sockets lie in it
        monkeypatch.setenv("PVAFFINITY_RUN", directory)
        yield Path(directory)


@pytest.fixture
def quick_waits(monkeypatch):
    """Waits look again soon, and ask a server that does not answer only for a moment."""
    from pvaffinity import looking, waiting

    monkeypatch.setattr(looking, "_SLICE", 0.2)
    monkeypatch.setattr(looking, "_PAUSE", 0.01)
    monkeypatch.setattr(looking, "_LAST", 0.05)
    monkeypatch.setattr(waiting, "_BACK_OFF", 0.3)


@pytest.fixture(scope="module")
def nodes():
    """Two nodes of one container runtime simulator, as clients of their sockets."""
    from selftests.simulated import two_nodes

    with two_nodes() as clients:
        yield clients


@pytest.fixture
def node(nodes):
    """The first of the two nodes, emptied afterwards."""
    from selftests.simulated import empty

    yield nodes[0]
    empty(nodes[0])


@pytest.fixture
def fake_go(tmp_path, monkeypatch):
    """A stand-in for go on PATH, an empty cache, and no downloads."""
    from selftests.faked_go import FakeGo

    fake = FakeGo(tmp_path / "fake")
    monkeypatch.setenv("PATH", f"{fake.root / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PVAFFINITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PVAFFINITY_DOWNLOADS", "off")
    yield fake
    (fake.root / "hold").unlink(missing_ok=True)


@pytest.fixture
def mirror(monkeypatch):
    """A server of release files, which is where downloads come from; what is known of other hosts is forgotten."""
    from pvaffinity.local import reachable
    from selftests.mirrored import Mirror
    from selftests.serving import serving

    for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(reachable, "_decided", {})
    with serving(Mirror()) as server:
        monkeypatch.setenv("PVAFFINITY_DOWNLOADS", server.url)
        yield server


@pytest.fixture
def empty_cache(tmp_path):
    """A cache of binaries with nothing in it."""
    from pvaffinity.local.bincache import Cache

    return Cache(tmp_path / "binaries")


@pytest.fixture(scope="module")
def named(request):
    """The directory given with --binaries, or None for the cache; no cluster is started where there are none."""
    from pvaffinity.errors import UserError
    from pvaffinity.local.binaries import ensure
    from pvaffinity.versions import load_versions

    option = request.config.getoption("--binaries", None)
    path = Path(option) if option else None
    try:
        ensure(load_versions().newest, named=path, sources=())
    except UserError as error:
        pytest.skip(f"no binaries of the newest release: {error.what}")
    return path


@pytest.fixture(scope="module")
def short():
    """A directory for what is a test module's own, whose path is short: sockets lie in it."""
    root = Path(tempfile.mkdtemp(prefix="pvl-"))
    yield root
    shutil.rmtree(root)
