"""The image store of a node: names only. Pulling takes no time and no network; an image holds nothing.

Ids and digests are hashes of the name, so the same name is the same image on every node. An image whose name has
:data:`NOT_FOUND_MARKER` in it cannot be pulled: the way to an ``ErrImagePull``.
"""

from __future__ import annotations

__all__ = ["NOT_FOUND_MARKER", "ImageStore", "describe"]

import functools
import hashlib
from collections.abc import Iterator

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.errors import InvalidArgumentError, NotFoundError

NOT_FOUND_MARKER = "no-such-image"
_SIZE = 1_000_000  # bytes; the kubelet takes 0 for an image that is not there


@functools.lru_cache(maxsize=256)
def describe(reference: str) -> pb.Image:
    """The image of that name (``busybox`` is ``busybox:latest``). The message is shared: do not change it."""
    name, _, digest = reference.partition("@")
    has_tag = ":" in name.rsplit("/", 1)[-1]
    repository = name.rsplit(":", 1)[0] if has_tag else name
    tag = name if has_tag else f"{name}:latest"
    image_id = digest or "sha256:" + hashlib.sha256(tag.encode()).hexdigest()
    return pb.Image(
        id=image_id,
        repo_tags=[] if digest else [tag],
        repo_digests=[f"{repository}@{image_id}"],
        size=_SIZE,
        uid=pb.Int64Value(value=0),
        spec=pb.ImageSpec(image=reference),
    )


class ImageStore:
    """Images pulled on one node."""

    def __init__(self) -> None:
        self._images: dict[str, pb.Image] = {}

    def __iter__(self) -> Iterator[pb.Image]:
        return iter(self._images.values())

    def pull(self, reference: str) -> pb.Image:
        """Make the image present.

        Raises:
            InvalidArgumentError: the name is empty.
            NotFoundError: the name has the marker in it.
        """
        if not reference:
            raise InvalidArgumentError("the image has no name")
        if NOT_FOUND_MARKER in reference:
            raise NotFoundError(f"failed to pull {reference}: not found (simulated: the name says so)")
        image = describe(reference)
        self._images[image.id] = image
        return image

    def find(self, reference: str) -> pb.Image | None:
        """The image of that name, digest or id, if it was pulled."""
        if reference in self._images:
            return self._images[reference]
        return self._images.get(describe(reference).id) if reference else None

    def remove(self, reference: str) -> None:
        """Forget the image; no error if it is not there."""
        image = self.find(reference)
        if image:
            del self._images[image.id]
