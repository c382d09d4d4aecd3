"""Debian bookworm for AArch64, what 64-bit Raspberry Pi OS is made of, emulated: its glibc, pip and gcc.

    python tests/board/bookworm.py ROOT             makes it in the folder ROOT, in ten minutes
    python tests/board/bookworm.py ROOT 'COMMAND'   copies this checkout there and runs COMMAND in it

Wants root, Linux 6.7 or newer, and Debian's mmdebstrap and qemu-user-static. Its own user namespace knows what runs
AArch64 programs; nothing is registered outside. PIP_* and the host's certificates and name servers are passed on.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = "python3,python3-venv,python3-pip,gcc,libc6-dev,ca-certificates"
NEW_MOUNTS, NEW_USERS, PRIVATE = 0x20000, 0x10000000, 0x44000
AARCH64 = rb":aarch64:M::\x7fELF\x02\x01\x01" + rb"\x00" * 9 + rb"\x02\x00\xb7\x00:"
MASK = rb"\xff" * 7 + rb"\x00" + rb"\xff" * 8 + rb"\xfe" + rb"\xff" * 3 + b":"
PROCESSOR = (
    "processor\t: 0\nFeatures\t: fp asimd crc32 cpuid asimdrdm asimddp\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"
)
LIBC = ctypes.CDLL(None, use_errno=True)


def must(status: int, what: str) -> None:
    if status:
        raise OSError(ctypes.get_errno(), what)


def run_emulated(command: list[str]) -> int:
    """The exit code of `command`, to which AArch64 programs are like any other."""
    (up, told_up), (down, told_down) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        must(LIBC.unshare(NEW_USERS | NEW_MOUNTS), "unshare")
        os.write(told_up, b"x")
        os.read(down, 1)
        os.setgid(0)
        os.setuid(0)
        must(LIBC.mount(b"none", b"/", None, PRIVATE, None), "mount")
        must(LIBC.mount(b"none", b"/proc/sys/fs/binfmt_misc", b"binfmt_misc", 0, None), "binfmt_misc")
        qemu = shutil.which("qemu-aarch64-static") or "qemu-aarch64-static"
        with open("/proc/sys/fs/binfmt_misc/register", "wb", buffering=0) as file:
            file.write(AARCH64 + MASK + qemu.encode() + b":F")
        os.execvp(command[0], command)
    os.read(up, 1)
    for ids in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{ids}").write_text("0 0 65536")
    os.write(told_down, b"x")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def make(root: Path) -> int:
    """A fresh system in `root`."""
    options = ["--mode=unshare", "--arch=arm64", "--variant=minbase", f"--include={PACKAGES}"]
    return run_emulated(["mmdebstrap", *options, "bookworm", str(root), "http://deb.debian.org/debian"])


def run_in(root: Path, command: str) -> int:
    """The exit code of `command` in a copy of this checkout, in `root`."""
    home = root / "srv" / "bitsynth"
    home.mkdir(parents=True, exist_ok=True)
    copy = f"git ls-files -co --exclude-standard -z | tar -c --null -T- | tar -x -C {shlex.quote(str(home))}"
    subprocess.run(copy, shell=True, cwd=CHECKOUT, check=True)
    for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        shutil.copy(file, f"{root}{file}")
    (root / "cpuinfo").write_text(PROCESSOR)
    passed = [f"{k}={v}" for k, v in os.environ.items() if k.startswith("PIP_")]
    inside = ["env", "-i", "HOME=/root", "LANG=C.UTF-8", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", *passed]
    ready = "for d in proc dev sys; do mount --rbind /$d $d; done; mount --bind cpuinfo proc/cpuinfo"
    enter = shlex.join(["chroot", ".", *inside, "bash", "-c", f"cd /srv/bitsynth && {command}"])
    os.chdir(root)
    return run_emulated(["sh", "-c", f"{ready}; exec {enter}"])


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    sys.exit(run_in(folder, sys.argv[2]) if len(sys.argv) > 2 else make(folder))
