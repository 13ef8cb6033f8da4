"""``pvaffinity node-image``: build and list node images for kind where nothing can be pulled."""

from __future__ import annotations

__all__ = ["node_image"]

import signal
from pathlib import Path
from typing import Any

import click

from pvaffinity.cli.progress import shown
from pvaffinity.engine import require
from pvaffinity.nodeimage.build import build as build_image
from pvaffinity.nodeimage.build import list_images
from pvaffinity.versions import load_versions


@click.group("node-image")
def node_image() -> None:
    """Node images for kind, made from Go modules and Debian packages; nothing is pulled.

    Only where the official images (kindest/node) cannot be had is this needed. docs/airgap.md says what is in them.

    \b
    pvaffinity node-image build 1.37                   the newest 1.37 that is known
    pvaffinity node-image build next --binaries DIR    binaries of your own, such as _output/bin of a source tree
    pvaffinity node-image list                         what the container engine has
    """  # noqa: D301 - click wants the real character


@node_image.command()
@click.argument("version")
@click.option(
    "--binaries",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with kubelet, kubeadm, kubectl, kube-apiserver, kube-controller-manager and kube-scheduler.",
)
@click.option("--again", is_flag=True, help="Make it even if the engine has it.")
def build(version: str, binaries: Path | None, again: bool) -> None:
    """Make the node image of VERSION and print its name.

    An image that is there, made by the same recipe, is kept. Needs Go, mmdebstrap and a container engine; from nothing
    it takes about ten minutes on two cores, the second release about five, most of it compiling.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    release = load_versions().find(version)
    engine = require(instead="")
    with shown() as show:
        name = build_image(release, engine, binaries=binaries, again=again, progress=show.progress, every=show.every)
    click.echo(name)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@node_image.command("list")
def list_() -> None:
    """Show the node images of this project that the container engine has."""
    engine = require(instead="")
    images = list_images(engine)
    for image in images:
        own = "  (of binaries that were named)" if image.own else ""
        note = own if image.current else f"  (made by an older recipe; {engine.name} image rm it)"
        click.echo(f"{image.version:<10} {image.size / 1e9:5.2f} GB  {image.name}{note}")
    if not images:
        click.echo("none; make one with: pvaffinity node-image build " + load_versions().newest.minor)
