"""Seconds from nothing to a kind cluster: the provider kind beside a bare ``kind create cluster``, same document.

    python benchmarks/kind_creation.py [--config gate-on] [--kubernetes-version 1.37] [--rounds 3]

Rounds alternate, so that a machine that becomes busy is busy for both. The provider's time includes what the bare
command leaves to its user: nodes that are Ready, a default ServiceAccount, and kubectl of the cluster's version.
"""

import argparse
import os
import secrets
import statistics
import subprocess
import time
from pathlib import Path

from pvaffinity import leftovers, providers
from pvaffinity.clusterconfig import load_config
from pvaffinity.engine import require
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.providers.kind_document import document_for
from pvaffinity.providers.kind_setup import choose_image, find_kind
from pvaffinity.versions import load_versions


def ours(spec: ClusterSpec) -> tuple[float, float]:
    """Seconds for creation and deletion by the provider."""
    name = f"bench-{secrets.token_hex(3)}"
    directory = leftovers.clusters_dir() / name
    directory.mkdir(parents=True)
    provider = providers.load("kind")
    started = time.monotonic()
    provider.check(spec)
    cluster = provider.create(spec, name, directory, os.getpid())
    created = time.monotonic()
    provider.delete(cluster)
    return created - started, time.monotonic() - created


def bare(spec: ClusterSpec, scratch: Path) -> tuple[float, float]:
    """Seconds for creation and deletion by kind itself."""
    engine, name = require(), f"bench-{secrets.token_hex(3)}"
    image = choose_image(engine, spec.release)
    document, kubeconfig = scratch / "kind.yaml", scratch / "kubeconfig"
    document.write_text(document_for(spec.config, image, engine, spec.release), encoding="utf-8")
    common = [f"--name={name}", f"--kubeconfig={kubeconfig}"]

    def kind(*arguments: str) -> float:
        started = time.monotonic()
        command = [str(find_kind().binary), *arguments, *common]
        subprocess.run(command, check=True, capture_output=True, env=engine.env)
        return time.monotonic() - started

    created = kind("create", "cluster", f"--config={document}", f"--image={image.reference}")
    return created, kind("delete", "cluster")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="gate-on")
    parser.add_argument("--kubernetes-version", default=load_versions().newest.minor)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    spec = ClusterSpec("kind", load_versions().find(options.kubernetes_version), load_config(options.config))
    scratch = leftovers.clusters_dir().parent / "bench"
    scratch.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[tuple[float, float]]] = {"provider": [], "bare": []}
    for number in range(1, options.rounds + 1):
        for who in ("provider", "bare") if number % 2 else ("bare", "provider"):
            seconds = ours(spec) if who == "provider" else bare(spec, scratch)
            results[who].append(seconds)
            print(
                f"round {number}  {who:<8}  created in {seconds[0]:5.1f} s, deleted in {seconds[1]:4.1f} s", flush=True
            )
    medians = {who: statistics.median(created for created, _ in all_) for who, all_ in results.items()}
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(
        f"{spec.id}, {len(spec.config.nodes)} nodes, {options.rounds} rounds, load {load:.1f} per processor: provider"
        f" {medians['provider']:.1f} s, bare {medians['bare']:.1f} s, ratio {medians['provider'] / medians['bare']:.2f}"
    )


if __name__ == "__main__":
    main()
