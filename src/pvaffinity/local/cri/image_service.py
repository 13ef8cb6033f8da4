"""The calls of ``runtime.v1.ImageService``."""

from __future__ import annotations

__all__ = ["ImageService"]

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.errors import InvalidArgumentError
from pvaffinity.local.cri.node import Node
from pvaffinity.local.cri.rpc import Method, Methods
from pvaffinity.local.cri.stats import filesystem_usage


class ImageService:
    """Images of one node; see :mod:`.images`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def methods(self) -> Methods:
        """The calls by name."""
        return {
            "ListImages": Method(pb.ListImagesRequest, self.list),
            "ImageStatus": Method(pb.ImageRequest, self.status),
            "PullImage": Method(pb.ImageRequest, self.pull),
            "RemoveImage": Method(pb.ImageRequest, self.remove),
            "ImageFsInfo": Method(pb.Empty, self.filesystem),
        }

    async def list(self, request: pb.ListImagesRequest) -> pb.ListImagesResponse:
        """All images, or the one asked for."""
        wanted = request.filter.image.image
        one = self._node.images.find(wanted)
        return pb.ListImagesResponse(images=([one] if one else []) if wanted else list(self._node.images))

    async def status(self, request: pb.ImageRequest) -> pb.ImageStatusResponse:
        """The image, or no image: absence is not an error."""
        return pb.ImageStatusResponse(image=self._node.images.find(_reference(request)))

    async def pull(self, request: pb.ImageRequest) -> pb.PullImageResponse:
        """Present at once; its id is the answer."""
        return pb.PullImageResponse(image_ref=self._node.images.pull(_reference(request)).id)

    async def remove(self, request: pb.ImageRequest) -> pb.Empty:
        """Forget it; no error if it is absent."""
        self._node.images.remove(_reference(request))
        return pb.Empty()

    async def filesystem(self, request: pb.Empty) -> pb.ImageFsInfoResponse:
        """What the images take up, on the file system of the state directory."""
        images = list(self._node.images)
        usage = filesystem_usage(self._node.state_dir, 4096 + sum(image.size for image in images), 1 + len(images))
        return pb.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])


def _reference(request: pb.ImageRequest) -> str:
    if not request.image.image:
        raise InvalidArgumentError("the request names no image")
    return request.image.image
