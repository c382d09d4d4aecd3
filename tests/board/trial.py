"""bitsynth as a new user of a Raspberry Pi meets it, tried in an emulated system (`emulated`).

    python tests/board/trial.py ROOT             installs by the README's quick start, runs it and its other commands,
                                                 the fast suite with gcc alone, and layers on that system by ssh
    python tests/board/trial.py ROOT --short     without the suite and ssh; wheels for it are unpacked from here
    python tests/board/trial.py ROOT --arm32     a 32-bit system, which is not installed on: C that is emitted here is
                                                 built and tested there, and networks and layers are run by ssh

The system, Debian bookworm or with `--suite trixie` that, is made in the folder ROOT if that is not there. Stops at the
first command that does not do what it should.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from board import emulated
from support.ssh_server import SSHD, Server

MODEL = "examples/fashion/fashion_a2w2_qonnx.onnx"
NEEDED = [
    *("z3-solver==4.15.4.*", "numpy>=2,<3", "jinja2", "cffi", "typer", "rich", "msgspec", "platformdirs", "filelock"),
    "onnx>=1.20,<2",
]
GLIBC = (17, 24, 26, 27, 28, 31, 34, 36, 38, 39, 41)
"""Versions 2.N of glibc that wheels are made for."""
NO_TIME = "an emulator tells no time"
KERNEL = """
import numpy as np, bitsynth
kernel = bitsynth.get_kernel(isa="auto", act_bits=2, w_bits=1)
a = np.random.default_rng(0).integers(0, 4, (100, 576))
w = np.random.default_rng(1).choice([-1, 1], (576, 64))
assert (kernel.matmul(a, w) == a @ w).all()
print(kernel.name, "is right")
"""

LAYER = (
    "bitsynth.Conv2d(numpy.random.default_rng(0).choice([-1, 1], (64, 64, 3, 3)), "
    "act_bits=2, w_bits=1, padding=1, image=(14, 14), isa='armv7_neon')"
)


@dataclass(frozen=True)
class Suite:
    """A version of Debian: its Python, and its glibc 2.N."""

    python: str
    glibc: int

    @property
    def platforms(self) -> list[str]:
        """The wheels that it can have, as manylinux calls them."""
        return ["manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in GLIBC if n <= self.glibc)]


SUITES = {
    "bookworm": Suite("3.11", 36),
    "trixie": Suite("3.13", 41),
}


class Failed(Exception):
    """A command did not do what it should."""


def expect(argv: list[str], *texts: str, code: int = 0, env: Mapping[str, str] | None = None) -> None:
    """Run a command, show its output, and require these texts in it and this exit code."""
    start = time.monotonic()
    print("$", *(word if len(word) < 200 else "..." for word in argv[-2:]), flush=True)
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, check=False)
    print(done.stdout, f"[{done.returncode}, {time.monotonic() - start:.0f} s]\n", flush=True)
    missing = [text for text in texts if text not in done.stdout]
    if done.returncode != code or missing:
        raise Failed(f"{argv[-1]!r}: exit code {done.returncode}, not {code}; without {missing}")


def inside(root: Path) -> list[str]:
    """The beginning of commands that run in `root`."""
    return [sys.executable, emulated.__file__, str(root)]


def wheels(root: Path, suite: Suite) -> None:
    """Unpack wheels for `root`, by this machine's pip: what they need is what the quick start installs."""
    platforms = [word for name in suite.platforms for word in ("--platform", name)]
    options = ["--only-binary=:all:", "--python-version", suite.python, "--implementation", "cp", *platforms]
    packages = root / f"usr/local/lib/python{suite.python}/dist-packages"
    target = ["--target", str(packages), "--no-warn-conflicts"]
    expect([sys.executable, "-m", "pip", "install", "--quiet", *options, *target, *NEEDED])


def quick_start() -> str:
    """The first commands of the README."""
    text = (emulated.CHECKOUT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


def test_command() -> str:
    """The README's command that tests a checkout."""
    text = (emulated.CHECKOUT / "README.md").read_text(encoding="utf-8")
    return text.partition("<!-- test command -->")[2].partition("```sh\n")[2].partition("```")[0]


def local(root: Path, bitsynth: str) -> None:
    """What runs in the system itself."""
    run = inside(root)
    expect([*run, f"{bitsynth} doctor"], "neon_dotprod: run: natively", "kernels for a76", "an emulator of programs")
    expect([*run, f"{bitsynth} bench resnet18 --layers C11"], NO_TIME, code=2)


def emitted(root: Path) -> None:
    """C of a 32-bit layer, emitted here: the system's own gcc builds it, and its self-test is right.

    Without optimization, which takes an emulated compiler most of a minute; other tests optimize with cross compilers.
    """
    code = f"import numpy, bitsynth; {LAYER}.emit({str(root / 'srv/conv')!r}, 'conv')"
    expect([sys.executable, "-c", code])
    build = (
        "gcc -std=c11 -O0 -march=armv7-a -mfpu=neon -mfloat-abi=hard $(ls *.c | grep -v main.c) -o selftest -lpthread"
    )
    expect([*inside(root), f"cd /srv/conv && {build} && ./selftest"], "conv: right")


def by_ssh(root: Path, *options: str) -> None:
    """Networks and layers compiled here and run in the system, which an ssh server of ours leads to."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            server.tool("sh", f'exec {sys.executable} {emulated.__file__} {root} \'exec sh "$@"\' sh "$@"')
            env = {**os.environ, "BITSYNTH_SSH_CONFIG": str(server.config)}
            command = [sys.executable, "-m", "bitsynth.cli"]
            bench = ["bench", "resnet18", "--layers", "C11", "--act-bits", "1", "--device", "board", *options]
            expect([*command, *bench], "1 layer right on", "so no times", env=env)
            check = ["check", MODEL, "--count", "1", "--device", "board", *options]
            expect([*command, *check], "the self-test is right", env=env)
        finally:
            server.stop()


def made(root: Path, suite: str, machine: str) -> None:
    """A system in `root`, with a copy of this checkout."""
    if not root.exists() and emulated.make(root, suite, machine):
        raise Failed(f"no system was made in {root}")
    emulated.fill(root)


def trial_in_32_bits(root: Path, suite: str = emulated.SUITE) -> None:
    """What a 32-bit system does, in order; Failed at the first that is not as it should be."""
    made(root, suite, "armhf")
    emitted(root)
    if SSHD and shutil.which("ssh"):
        by_ssh(root, "--isa", "armv7_neon")


def trial(root: Path, suite: str = emulated.SUITE, *, short: bool) -> None:
    """Everything, in order; Failed at the first that is not as it should be."""
    made(root, suite, "arm64")
    if short:
        wheels(root, SUITES[suite])
        bitsynth = "python3 -m bitsynth.cli"
        expect([*inside(root), f"{bitsynth} compile {MODEL} --name fashion -o /tmp/out"], "files in /tmp/out")
    else:
        expect([*inside(root), quick_start()], "files in out")
        bitsynth = ".venv/bin/bitsynth"
        expect([*inside(root), f"{bitsynth} verify out --no-z3"], "for every input")
        expect([*inside(root), f".venv/bin/python -c '{KERNEL}'"], "is right")
        expect([*inside(root), f"{bitsynth} check {MODEL} --count 1"], "C equals the reference")
    local(root, bitsynth)
    if short:
        return
    if SSHD and shutil.which("ssh"):
        by_ssh(root)
    expect([*inside(root), test_command()])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--suite", choices=SUITES, default=emulated.SUITE)
    parser.add_argument("--short", action="store_true")
    parser.add_argument(emulated.ARM32, action="store_true")
    args = parser.parse_args()
    try:
        if args.arm32:
            trial_in_32_bits(args.root.resolve(), args.suite)
        else:
            trial(args.root.resolve(), args.suite, short=args.short)
    except Failed as why:
        sys.exit(str(why))
