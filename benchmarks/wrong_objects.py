"""Compiled kernels with one bit changed: is each that computes something else refused?

    python benchmarks/wrong_objects.py [--count 100] [--seed 2026] [KERNEL ...]

Each kernel is compiled by gcc and by clang. In each library one bit of the microkernel's code is changed: of an opcode,
a register, an immediate, an offset, the distance of a jump, or a number of a general instruction, which has sizes,
flush periods and the way from tile to tile. A process calls the changed function on sizes about the
kernel's periods and on bytes that are random, all 0, all ones, and the least and the greatest, and compares what it
stores with the unchanged function's. It prints how many of each kind compute something else, how many of these are
refused, and how many are proved. Exit code 1 if one that computes something else is proved, or an unchanged object is
refused.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import os
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitsynth.errors import BitsynthError
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.declared import machine_table
from bitsynth.objects.elf import read_object
from bitsynth.objects.prove import prove_object, sizes_of
from bitsynth.store.matmul import MATMUL

KERNELS = (
    "bs_mm_a8u_w8s_s32_avx2_6x16x2",
    "bs_mm_a2u_w8s_s32_avx2_6x32x2",
    "bs_mm_a4u_w4b_s32_avx2_8x16x4",
    "bs_mm_a1u_w1b_s32_avx2_3x64x4",
)
FAMILIES = ("gcc", "clang")
KINDS = ("opcode", "register", "immediate", "offset", "target", "number")
FILLS = ("random", "zeros", "ones", "least and greatest")
MOST_STEPS = 600
"""Sizes with more steps are not called natively."""
SYSTEM_CALLS = (b"\x0f\x05", b"\x0f\x34", b"\xcd")
"""Instructions that would leave the process."""
LINE = 64
"""Bytes of a line of the cache; no instruction wants more alignment."""
SECONDS = 3
"""A call that takes longer is wrong, as it does not end."""


@dataclass(frozen=True)
class Wrong:
    """A library with one bit changed: which kind of field, and the instruction in words."""

    kind: str
    instruction: str
    data: bytes


def kernel_named(name: str, variant: str | None = None) -> MatmulKernel:
    """Return a shipped kernel, or a variant of it."""
    return MatmulKernel(MATMUL.load_named(name, variant), KernelName.parse(name).spec)


def fields(ins: Any, kind: str) -> list[tuple[int, int]]:
    """Return the bits of an instruction that belong to a kind of field, as (byte, bit)."""
    encoding, size = ins.encoding, ins.size
    general, jump = ins.mnemonic[0] != "v", ins.mnemonic[0] == "j"
    immediate = range(encoding.imm_offset, encoding.imm_offset + encoding.imm_size) if encoding.imm_offset else ()
    bits: list[tuple[int, int]] = []
    if kind == "opcode":
        at = (encoding.modrm_offset or 1) - 1
        bits = [(at, k) for k in range(8)]
    elif kind == "register" and encoding.modrm_offset:
        bits = [(encoding.modrm_offset, k) for k in range(6)]
        bits += [] if general else [(encoding.modrm_offset - 2, k) for k in range(3, 7)]
    elif kind == "offset" and encoding.disp_offset:
        at = range(encoding.disp_offset, encoding.disp_offset + encoding.disp_size)
        bits = [(byte, k) for byte in at for k in range(8)]
    elif kind == ("target" if jump else "number" if general else "immediate"):
        bits = [(byte, k) for byte in immediate for k in range(8)]
    return [(byte, k) for byte, k in bits if 0 <= byte < size]


def wrong_objects(path: Path, name: str, isa: str, count: int, rng: random.Random) -> Iterator[Wrong]:
    """Yield libraries with one bit changed in the code of function `name`, all kinds in turn."""
    import capstone
    from elftools.elf.elffile import ELFFile

    table = machine_table(load(isa))
    at, size = read_object(path, table).functions[name]
    data = path.read_bytes()
    with path.open("rb") as file:
        start = next(iter(ELFFile(file).address_offsets(at)))
    decoder = capstone.Cs(*(getattr(capstone, part) for part in table.decoder))
    decoder.detail = True
    code = list(decoder.disasm(data[start : start + size], at))
    places = {kind: [(ins, *bit) for ins in code for bit in fields(ins, kind)] for kind in KINDS}
    kinds = [kind for kind in KINDS if places[kind]]
    for k in range(count):
        kind = kinds[k % len(kinds)]
        ins, byte, bit = rng.choice(places[kind])
        offset = start + ins.address - at + byte
        changed = bytearray(data)
        changed[offset] ^= 1 << bit
        if not any(call in changed[offset - 2 : offset + 3] for call in SYSTEM_CALLS):
            yield Wrong(kind, f"{ins.address:#x}: {ins.mnemonic} {ins.op_str}", bytes(changed))


def is_proved(path: Path, kernel: MatmulKernel) -> bool:
    """Return whether the object is proved."""
    try:
        prove_object(path, kernel)
    except BitsynthError:
        return False
    return True


def buffers(rng: np.random.Generator, fill: str, size: int) -> np.ndarray:
    """Return bytes of one kind."""
    if fill == "random":
        return rng.integers(0, 256, size, np.uint8)
    if fill == "least and greatest":
        return rng.choice(np.array([0, 0x7F, 0x80, 0xFF], np.uint8), size)
    return np.full(size, 0 if fill == "zeros" else 255, np.uint8)


def placed(data: np.ndarray, alignment: int) -> np.ndarray:
    """Return a copy whose address is an odd multiple of `alignment`: what the C interface promises, and no more."""
    room = np.empty(len(data) + 2 * LINE, np.uint8)
    first = -room.ctypes.data % LINE + alignment
    room[first : first + len(data)] = data
    return room[first : first + len(data)]


def results(path: Path, name: str, kernel: Kernel) -> Iterator[bytes]:
    """Yield what the function stores, of each size and each kind of bytes; past the tiles too."""
    function = getattr(ctypes.CDLL(str(path)), name)
    function.restype = None
    function.argtypes = [ctypes.c_size_t] * 3 + [ctypes.c_void_p] * 5 + [ctypes.c_size_t]
    rng = np.random.default_rng(1)
    for sizes in sizes_of(kernel):
        if sizes.all_steps > MOST_STEPS:
            continue
        for fill in FILLS:
            size = sizes.steps * kernel.row_bytes + 8
            rows = [placed(buffers(rng, fill, size), 8) for _ in range(kernel.rows * sizes.segments)]
            pointers = np.array([row.ctypes.data for row in rows] or [0], np.uintp)
            w = placed(buffers(rng, fill, sizes.tiles * sizes.all_steps * kernel.columns * kernel.column_bytes + 8), 8)
            g = placed(buffers(rng, "random", 4 * sizes.tiles * kernel.columns + 8), 4)
            h = placed(buffers(rng, "random", 4 * kernel.rows + 8), 4)
            width = kernel.columns * sizes.tiles + 4
            c = placed(np.full(4 * width * kernel.rows + 4096, 0xA5, np.uint8), 4)
            given = [pointers.ctypes.data, w.ctypes.data, g.ctypes.data, h.ctypes.data, c.ctypes.data]
            function(sizes.tiles, sizes.segments, sizes.steps, *given, width)
            yield c.tobytes() + w.tobytes() + g.tobytes() + h.tobytes() + b"".join(row.tobytes() for row in rows)


def computes_the_same(path: Path, unchanged: Path, name: str, kernel: Kernel) -> bool:
    """Return whether two libraries store the same for all inputs that are tried, in a process of its own."""
    child = os.fork()
    if not child:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        try:
            pairs = zip(results(path, name, kernel), results(unchanged, name, kernel), strict=True)
            os._exit(any(a != b for a, b in pairs))
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def judged(name: str, family: str, count: int, seed: int, folder: Path) -> Counter[tuple[str, str]]:
    """Return how many changed objects of a kernel there are of each kind and verdict."""
    kernel = kernel_named(name)
    unchanged = kernel.library(family)
    out: Counter[tuple[str, str]] = Counter()
    if not is_proved(unchanged, kernel):
        out["none", "WRONG: refused, and right"] += 1
    rng = random.Random(f"{seed} {name} {family}")
    for k, wrong in enumerate(wrong_objects(unchanged, name, kernel.spec.isa, count, rng)):
        path = folder / f"{name}_{family}_{k}.so"
        path.write_bytes(wrong.data)
        same, proved = computes_the_same(path, unchanged, name, kernel.entry.kernel), is_proved(path, kernel)
        verdict = "computes the same, " if same else "computes something else, "
        out[wrong.kind, verdict + ("proved" if proved else "refused")] += 1
        if proved and not same:
            out[wrong.kind, "WRONG: proved, and computes something else"] += 1
            print(f"WRONG: {name} by {family}: {wrong.kind} of {wrong.instruction}")
        path.unlink()
    return out


def main() -> int:
    """Print the verdicts on changed objects of each kernel and compiler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    parser.add_argument("--count", type=int, default=100, help="changed objects of each kernel and compiler")
    parser.add_argument("--seed", type=int, default=2026)
    given = parser.parse_args()
    total: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.kernels:
            for family in FAMILIES:
                counts = judged(name, family, given.count, given.seed, Path(folder))
                total += counts
                print(f"{name} by {family}: {sum(counts.values())} objects", flush=True)
    for (kind, verdict), number in sorted(total.items()):
        print(f"{kind:<10} {verdict:<42} {number:>5}")
    return int(any(verdict.startswith("WRONG") for _, verdict in total))


if __name__ == "__main__":
    sys.exit(main())
