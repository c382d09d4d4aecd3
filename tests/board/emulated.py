"""Debian for Arm, what Raspberry Pi OS is made of, emulated: its glibc, Python, pip and gcc, in 64 or 32 bits.

    python tests/board/emulated.py ROOT             makes it in the folder ROOT, in a minute
    python tests/board/emulated.py --arm32 ROOT     makes one of 32 bits
    python tests/board/emulated.py ROOT 'COMMAND'   runs COMMAND in it, in the copy of this checkout that `trial` made

Wants root, Linux 6.7 or newer, and Debian's mmdebstrap and qemu-user-static. Its own user namespace knows what runs
Arm's programs; nothing is registered outside. Packages are unpacked and not configured: that takes long emulated,
and compilers and Python do without. PIP_* and the host's certificates and name servers are passed on.
"""

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
HOME = "/srv/bitsynth"
SUITE = "bookworm"
ARM32 = "--arm32"
PACKAGES = (
    "base-files,bash,dash,coreutils,sed,grep,findutils,tar,gzip,libc-bin,util-linux,ca-certificates,"
    "python3,python3-venv,python3-pip,gcc,libc6-dev"
)
MACHINES = {"arm64": ("qemu-aarch64-static", 2, 0xB7), "armhf": ("qemu-arm-static", 1, 0x28)}
"""Debian's names of processors, what runs their programs, and how these begin: the class and machine of ELF."""
TOOLS = ("mmdebstrap", *(qemu for qemu, _, _ in MACHINES.values()))
MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
OLDEST_KERNEL = (6, 7)
NEW_MOUNTS, NEW_USERS, PRIVATE = 0x20000, 0x10000000, 0x44000
MASK = rb"\xff" * 7 + rb"\x00" + rb"\xff" * 8 + rb"\xfe" + rb"\xff" * 3 + b":"
PROCESSOR = (
    "processor\t: 0\nFeatures\t: fp asimd crc32 cpuid asimdrdm asimddp\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"
)
"""What emulators of programs show, since qemu 8.1, as /proc/cpuinfo: an Arm processor."""
QEMU_CPU = "cortex-a76"
"""That processor. By default there is SVE too, for which numpy's OpenBLAS has code that qemu 7.2 runs wrongly."""
LIBC = ctypes.CDLL(None, use_errno=True)


def lacking() -> str:
    """Why there can be no such system here; empty if there can."""
    version = tuple(int(n) for n in platform.release().partition("-")[0].split(".")[:2])
    reasons = {
        "this is no root user": os.geteuid() != 0,
        "Linux is older than 6.7": version < OLDEST_KERNEL,
        **{f"{tool} is not installed": shutil.which(tool) is None for tool in TOOLS},
    }
    return next((why for why, true in reasons.items() if true), "")


def must(status: int, what: str) -> None:
    if status:
        raise OSError(ctypes.get_errno(), what)


def registration(machine: str) -> bytes:
    """What tells Linux of the programs of a processor."""
    qemu, bits, number = MACHINES[machine]
    magic = (
        rf":{machine}:M::\x7fELF\x0{bits}\x01\x01".encode() + rb"\x00" * 9 + rf"\x02\x00\x{number:02x}\x00:".encode()
    )
    return magic + MASK + (shutil.which(qemu) or qemu).encode() + b":F"


def run_emulated(command: list[str]) -> int:
    """The exit code of `command`, to which Arm's programs are like any other."""
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
        for name in MACHINES:
            Path("/proc/sys/fs/binfmt_misc/register").write_bytes(registration(name))
        os.execvp(command[0], command)
    os.read(up, 1)
    for ids in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{ids}").write_text("0 0 65536")
    os.write(told_down, b"x")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def make(root: Path, suite: str = SUITE, machine: str = "arm64") -> int:
    """A fresh system in `root`."""
    options = [
        "--mode=unshare",
        f"--arch={machine}",
        "--variant=extract",
        f"--hook-dir={MERGED}",
        f"--include={PACKAGES}",
    ]
    return run_emulated(["mmdebstrap", "--quiet", *options, suite, str(root), "http://deb.debian.org/debian"])


def fill(root: Path) -> None:
    """Put a copy of this checkout into `root`, and what its programs need of the host."""
    home = Path(f"{root}{HOME}")
    home.mkdir(parents=True, exist_ok=True)
    copy = f"git ls-files -co --exclude-standard -z | tar -c --null -T- | tar -x -C {shlex.quote(str(home))}"
    subprocess.run(copy, shell=True, cwd=CHECKOUT, check=True)
    (root / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
    for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        shutil.copy(file, f"{root}{file}")
    (root / "cpuinfo").write_text(PROCESSOR)


def run_in(root: Path, argv: list[str]) -> int:
    """The exit code of a command in `root`, in the copy of this checkout."""
    passed = [f"{k}={v}" for k, v in os.environ.items() if k.startswith("PIP_")]
    if (root / "lib/ld-linux-aarch64.so.1").exists():
        passed.append(f"QEMU_CPU={QEMU_CPU}")
    inside = ["env", "-i", "HOME=/root", "LANG=C.UTF-8", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", *passed]
    ready = "for d in proc dev sys; do mount --rbind /$d $d; done; mount --bind cpuinfo proc/cpuinfo"
    enter = shlex.join(["chroot", ".", *inside, "sh", "-c", f'cd {HOME} && exec "$@"', "sh", *argv])
    os.chdir(root)
    return run_emulated(["/bin/sh", "-c", f"{ready}; exec {enter}"])


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != ARM32]
    folder = Path(given[0]).resolve()
    machine = "armhf" if ARM32 in sys.argv else "arm64"
    sys.exit(run_in(folder, ["bash", "-c", *given[1:]]) if len(given) > 1 else make(folder, machine=machine))
