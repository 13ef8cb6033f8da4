"""Node images for kind where nothing can be pulled: made from Go modules and Debian packages.

The files that go into an image, and the list of what else does, are in ``airgap/``.
"""
