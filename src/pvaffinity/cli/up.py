"""``pvaffinity up``: a cluster to play with, for as long as the command runs."""

from __future__ import annotations

__all__ = ["up"]

import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click

from pvaffinity import leftovers, providers, room
from pvaffinity.cli.progress import shown
from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import UserError
from pvaffinity.local.daemon import tail
from pvaffinity.local.owner import Owner, remove_unused
from pvaffinity.providers.base import Cluster, ClusterSpec
from pvaffinity.providers.heeded import heeding
from pvaffinity.versions import Release, load_versions


@click.command()
@click.option(
    "--cluster-config",
    "--config",
    "config",
    default="gate-on",
    show_default=True,
    metavar="NAME|FILE",
    help="A name from clusterconfigs/, or a kind document.",
)
@click.option("--kubernetes-version", metavar="VERSION", help="Release, such as 1.35.  [default: the newest]")
@click.option(
    "--provider",
    default="auto",
    show_default=True,
    metavar="auto|local|kind",
    help="What makes the cluster; auto: kind where a container engine, kind and a node image can be had, else local.",
)
@click.option(
    "--binaries",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with the Kubernetes binaries, instead of the cache; for the provider local.",
)
@click.option("--kind-image", metavar="IMAGE", help="Node image, instead of the release's; for the provider kind.")
def up(
    config: str, kubernetes_version: str | None, provider: str, binaries: Path | None, kind_image: str | None
) -> None:
    """Start a cluster, print how to reach it, and remove it on Ctrl-C.

    \b
    pvaffinity up                                      the gate on, newest release
    pvaffinity up --config gate-off --kubernetes-version 1.34
    """  # noqa: D301 - click wants the real character
    versions = load_versions()
    release = versions.find(kubernetes_version) if kubernetes_version is not None else versions.newest
    wanted = load_config(config)
    chosen = _chosen(provider, release, binaries, kind_image)
    maker = providers.load(chosen.name, binaries=binaries, image=kind_image)
    spec = ClusterSpec(chosen.name, release, wanted)
    click.echo(f"Kubernetes {release} from provider {chosen.name}: {chosen.why}", err=True)
    with _interruptible():
        started = time.monotonic()
        with shown() as show:
            maker.check(spec, show.progress)
            name = f"up-{secrets.token_hex(3)}"
            directory = leftovers.clusters_dir() / name
            try:
                directory.mkdir(parents=True, mode=0o700)
            except OSError as error:
                fix = "make room there, or set PVAFFINITY_RUN to another directory"
                raise UserError(f"{directory} cannot be made: {error.strerror}", fix) from error
            try:
                Owner.of(os.getpid()).claim(directory)  # before the provider, which may build binaries for minutes
                cluster = maker.create(spec, name, directory, os.getpid(), show.progress)
            finally:
                room.settle()
                remove_unused(directory)  # where nothing came of it
        try:
            _present(cluster, spec, time.monotonic() - started)
            with contextlib.suppress(KeyboardInterrupt):
                _stay(cluster)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # it takes a second, and is better not left half done
            click.echo("\nremoving the cluster", err=True)
            maker.delete(cluster)


def _chosen(provider: str, release: Release, binaries: Path | None, image: str | None) -> providers.Choice:
    """The provider, which must heed the options that are given.

    Raises:
        UserError: it does not, or there is no such provider.
    """
    if provider == "existing":
        raise UserError("a cluster that exists is up already", "use --provider local or --provider kind")
    if image == "":
        raise UserError("--kind-image is empty", "give it a value, or leave it out")
    given = [option for option, value in (("--binaries", binaries), ("--kind-image", image)) if value]
    fitting = heeding(provider, given)
    if provider == "auto" and given:
        return providers.Choice(fitting, f"{given[0]} is for it")
    return providers.choose(fitting, release, image=image)


def _present(cluster: Cluster, spec: ClusterSpec, seconds: float) -> None:
    kubectl = cluster.kubectl or Path("kubectl")
    click.echo(f"Kubernetes {spec.release} with {len(spec.config.nodes)} nodes ({spec.config.name}), {seconds:.1f} s")
    click.echo(f"kubeconfig: {cluster.kubeconfig}")
    click.echo(f"try:        {kubectl} --kubeconfig {cluster.kubeconfig} get nodes -L topology.kubernetes.io/zone")
    click.echo("Ctrl-C removes it.")


def _stay(cluster: Cluster) -> None:
    """Wait for a signal, or for the cluster's end.

    Raises:
        UserError: the cluster ended by itself.
        KeyboardInterrupt: a signal came.
    """
    control = cluster.directory / "control.sock"
    if not control.exists():
        while True:
            signal.pause()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(control))
        line.recv(1)  # nothing is ever said unasked: it returns when the other side is gone
    log = tail((cluster.logs or cluster.directory) / "supervisor.log")
    raise UserError("the cluster ended by itself", "start another one; below is what its supervisor saw", detail=log)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP do what Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
