"""Linux namespaces by system call: private users, network, mounts and processes, without root and without tools.

Nothing here changes the host: every mount is made in a mount namespace of our own. Run as a program it tries all of it
and says in one JSON line what failed, which is what ``pvaffinity doctor`` and the local provider's check rely on.
"""

from __future__ import annotations

__all__ = [
    "NamespaceError",
    "die_with_parent",
    "enter_cluster",
    "join_mounts",
    "mount_proc",
    "node_mounts",
    "subreaper",
]

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "s390x": 217, "riscv64": 41}.get(
    os.uname().machine, 41
)
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
_STATVFS_TO_MS = {os.ST_NOSUID: MS_NOSUID, os.ST_NODEV: MS_NODEV, os.ST_NOEXEC: MS_NOEXEC, os.ST_NOATIME: 1024,
                  os.ST_NODIRATIME: 2048, os.ST_RELATIME: 1 << 21}  # fmt: skip

READ_ONLY_TREES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "sys", "nix", "gnu")
"""What a node sees of the host, read-only; everything else under a node's ``/`` is its own and empty."""
NODE_DIRECTORIES = ("mnt", "srv", "opt", "home", "root", "media", "data")
"""Directories of a node that are kept on disk, and so outlive a kubelet, as on a real machine."""

_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceError(OSError):
    """A system call this machine does not allow; ``step`` says which part of the set-up it was."""

    def __init__(self, number: int, step: str) -> None:
        super().__init__(number, os.strerror(number))
        self.step = step


def _check(result: int, step: str) -> None:
    if result != 0:
        raise NamespaceError(ctypes.get_errno(), step)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a file system or a bind mount.

    See mount of section 2 of the manual.

    Raises:
        NamespaceError: refused.
    """
    args = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None)
    _check(_libc.mount(*args), f"mount {kind or 'bind'} on {target}")


def unmount(target: str) -> None:
    """umount2(2), lazily: what is still open stays usable.

    Raises:
        NamespaceError: refused.
    """
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends, however it ends (prctl PR_SET_PDEATHSIG)."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def subreaper() -> None:
    """Become the parent of descendants whose own parent ends (prctl PR_SET_CHILD_SUBREAPER)."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter_cluster(*, processes: bool = True) -> None:
    """Move this process into new user, network and mount namespaces, as their root.

    Args:
        processes: also make a new process namespace; the *next* child is process 1 there.

    Raises:
        NamespaceError: this machine does not allow it.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | (CLONE_NEWPID if processes else 0)
    _check(_libc.unshare(flags), "create user, network and mount namespaces")
    try:
        Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="utf-8")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="utf-8")
    except OSError as error:
        raise NamespaceError(error.errno or 0, "map the user into its namespace") from error
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


def mount_proc() -> None:
    """Give a new process namespace its own ``/proc``.

    Raises:
        NamespaceError: refused, as where a container engine masks parts of /proc.
    """
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def protect_sysctls() -> None:
    """Make ``/proc/sys`` read-only: a kubelet run by root would write the host's settings (vm.overcommit_memory, …)."""
    mount("/proc/sys", "/proc/sys", flags=MS_BIND | MS_REC)
    read_only("/proc/sys")


def read_only(path: str) -> None:
    """Make the mount at ``path`` and those below it read-only, by mount_setattr(2) where the kernel has it (5.12).

    Raises:
        NamespaceError: refused.
    """
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    done = _libc.syscall(
        _SYS_MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes)
    )
    if done == 0:
        return
    now = os.statvfs(path).f_flag  # flags that are set must be given again, or the kernel refuses
    keep = sum(ms for st, ms in _STATVFS_TO_MS.items() if now & st)
    mount("none", path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | keep)


def node_mounts(state: Path, binary: Path) -> None:
    """Give this process the file system of a node: the host's programs read-only, all else the node's own.

    ``state`` appears at ``/var/lib/kubelet`` (where the kubelet has paths built in) and under its own name; the
    kubelet's binary under its own name. Directories such as ``/mnt`` lie in ``state/hostfs``.

    Raises:
        NamespaceError: a mount was refused.
    """
    _check(_libc.unshare(CLONE_NEWNS), "create a node's mount namespace")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    root = state / "rootfs"
    root.mkdir(exist_ok=True)
    mount("node", str(root), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m")
    for name in READ_ONLY_TREES:
        source, target = Path("/", name), root / name
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_dir():
            target.mkdir()
            mount(str(source), str(target), flags=MS_BIND | MS_REC)
            read_only(str(target))
    for name in ("dev", "proc"):
        (root / name).mkdir()
        mount(f"/{name}", str(root / name), flags=MS_BIND | MS_REC)
    for name in NODE_DIRECTORIES:
        (state / "hostfs" / name).mkdir(parents=True, exist_ok=True)
        (root / name).mkdir()
        mount(str(state / "hostfs" / name), str(root / name), flags=MS_BIND)
    for name in ("tmp", "run", "var/tmp", "var/lib/kubelet", "var/log/containers"):
        (root / name).mkdir(parents=True)
    inside = root / state.relative_to("/")
    inside.mkdir(parents=True, exist_ok=True)
    for target in (root / "var/lib/kubelet", inside):
        mount(str(state), str(target), flags=MS_BIND)
    program = root / binary.relative_to("/")
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()
    mount(str(binary), str(program), flags=MS_BIND)
    old = root / ".host"
    old.mkdir()
    _check(_libc.syscall(_SYS_PIVOT_ROOT, str(root).encode(), str(old).encode()), "change to the node's root")
    os.chdir("/")
    unmount("/.host")
    Path("/.host").rmdir()


def join_mounts(descriptor: int) -> None:
    """Enter the mount namespace of an open ``/proc/PID/ns/mnt``.

    Raises:
        NamespaceError: refused.
    """
    _check(_libc.setns(descriptor, CLONE_NEWNS), "enter a node's mount namespace")
    os.chdir("/")


def _attempt(processes: bool) -> None:
    enter_cluster(processes=processes)
    if processes:
        pid = os.fork()
        if pid == 0:
            try:
                mount_proc()
            except NamespaceError as error:
                os._exit(error.errno or 1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            raise NamespaceError(abs(status), "mount a fresh /proc")
    protect_sysctls()
    mount("try", "/mnt", "tmpfs", 0, "size=64k")


def main() -> None:
    """Try it for real, in this process; print ``{}`` or ``{"step": …, "errno": …}``."""
    try:
        _attempt(processes="--no-pid" not in sys.argv)
    except NamespaceError as error:
        print(json.dumps({"step": error.step, "errno": error.errno}))
    else:
        print("{}")


if __name__ == "__main__":
    main()
