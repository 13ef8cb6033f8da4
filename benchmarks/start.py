"""How long a local cluster takes to start, and how much memory it holds: medians of several starts.

Usage: python benchmarks/start.py [--runs 5] [--kubernetes-version 1.37] [--binaries DIR] [--markdown]

Measured: from the call of LocalProvider.create to its return (every node Ready and untainted, ServiceAccounts there,
in short: usable), with the binaries in the cache. Memory is the proportional set size (PSS) of every process of the
cluster 10 s after that, by kind of process; shared pages are divided among those who share them. The CPU time that the
cluster's processes took until it was usable tells how much of a start is work, also where others use the machine.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import secrets
import statistics
import time
from pathlib import Path

import click
import psutil

from pvaffinity import leftovers
from pvaffinity.clusterconfig import ClusterConfig, load_config
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.providers.local import LocalProvider
from pvaffinity.versions import Release, load_versions

_SETTLE = 10.0  # seconds
GOAL_SECONDS, GOAL_BYTES = 5.0, 1_000_000_000


@dataclasses.dataclass(frozen=True)
class Run:
    """One start."""

    seconds: float
    stop_seconds: float
    cpu_seconds: float
    memory: dict[str, int]


def measure(provider: LocalProvider, spec: ClusterSpec, *, memory: bool) -> Run:
    """Start one cluster, look at its memory if asked to, and delete it."""
    name = f"bench-{secrets.token_hex(3)}"
    directory = leftovers.clusters_dir() / name
    directory.mkdir(parents=True, mode=0o700)
    before = time.monotonic()
    cluster = provider.create(spec, name, directory, os.getpid())
    seconds = time.monotonic() - before
    cpu = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in leftovers.processes_of(cluster.directory))
    used: dict[str, int] = {}
    if memory:
        time.sleep(_SETTLE)
        for pid in leftovers.processes_of(cluster.directory):
            process = psutil.Process(pid)
            kind = _kind(process.cmdline())
            used[kind] = used.get(kind, 0) + process.memory_full_info().pss
    before = time.monotonic()
    provider.delete(cluster)
    return Run(seconds, time.monotonic() - before, cpu, used)


def _kind(command: list[str]) -> str:
    for module, kind in (
        ("pvaffinity.local.cri", "container simulator"),
        ("pvaffinity.local.supervisor", "supervisor"),
    ):
        if module in command:
            return kind
    return Path(command[0]).name


def _report(spec: ClusterSpec, runs: list[Run]) -> None:
    median = statistics.median(run.seconds for run in runs)
    stop = statistics.median(run.stop_seconds for run in runs)
    cpu = statistics.median(run.cpu_seconds for run in runs)
    memory = runs[-1].memory
    total = sum(memory.values())
    nodes = f"control plane + {len(spec.config.nodes) - 1} nodes"
    times = " ".join(f"{run.seconds:.1f}" for run in runs)
    click.echo(
        f"| {spec.release} | {nodes} | {median:.2f} s ({times}) | {cpu:.1f} s | {stop:.2f} s | {total / 1e6:.0f} MB |"
    )
    parts = ", ".join(f"{kind} {size / 1e6:.0f}" for kind, size in sorted(memory.items(), key=lambda i: -i[1]))
    click.echo(f"  of which MB: {parts}", err=True)


def _configs() -> list[ClusterConfig]:
    standard = load_config("gate-off")
    return [dataclasses.replace(standard, nodes=standard.nodes[:5]), standard]


@click.command()
@click.option("--runs", default=5, show_default=True, help="Starts of each kind.")
@click.option("--kubernetes-version", "versions", multiple=True, help="Release; repeatable.  [default: the newest]")
@click.option("--binaries", type=click.Path(path_type=Path), help="Directory with binaries instead of the cache.")
def main(runs: int, versions: tuple[str, ...], binaries: Path | None) -> None:
    """Print one line of a Markdown table for each release and number of nodes."""
    known = load_versions()
    releases: list[Release] = [known.find(text) for text in versions] or [known.newest]
    provider = LocalProvider(binaries)
    load = os.getloadavg()[0]
    click.echo(f"{os.cpu_count()} CPUs, {platform.machine()}, Linux {platform.release()}, load before: {load:.1f}")
    if load > 0.5:
        click.echo("other work runs on this machine: the times below are worse than they need to be", err=True)
    click.echo(f"goal: {GOAL_SECONDS:g} s and {GOAL_BYTES / 1e6:.0f} MB for a control plane and 4 nodes\n")
    click.echo("| Kubernetes | cluster | usable: median (all) | CPU until then | deleted | PSS |")
    click.echo("| --- | --- | --- | --- | --- | --- |")
    for release in releases:
        for config in _configs():
            spec = ClusterSpec("local", release, config)
            provider.check(spec)
            measured = [measure(provider, spec, memory=number == runs - 1) for number in range(runs)]
            _report(spec, measured)


if __name__ == "__main__":
    main()
