"""Compiled kernels with one bit changed: is each that computes something else refused?

    python benchmarks/wrong_objects.py [--count 100] [--seed 2026] [--rule] [KERNEL ...]

Each kernel is compiled by gcc and by clang. In each library one bit of the microkernel's code is changed: of an opcode,
a register, an immediate, an offset, the distance of a jump, or a number of a general instruction, which has sizes,
flush periods and the way from tile to tile. A process calls the changed function on sizes around the kernel's periods,
with bytes that are random, all 0, all ones, the least and the greatest. It compares the stored results with the
unchanged function's. Code of another architecture runs under unicorn. For each kind of change it prints how many
functions compute something else, how many of these are refused, how many are proved, and how many for all sizes. With
`--rule` the loop rule judges alone, without the sizes that are run; kernels that it does not apply to are left out, as
it would refuse every change of them. Exit code 1 if one that computes something else is proved, or an unchanged object
is refused.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitsynth.errors import BitsynthError
from bitsynth.host import features
from bitsynth.isa import architecture
from bitsynth.isa.domains.forms import Inexact
from bitsynth.isa.load import Isa, load
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.declared import machine_table
from bitsynth.objects.elf import read_object
from bitsynth.objects.prove import prove_all_sizes, prove_object, sizes_of
from bitsynth.objects.reference import Sizes
from bitsynth.store.matmul import MATMUL

KERNELS = (
    "bs_mm_a8u_w8s_s32_avx2_6x16x2",
    "bs_mm_a2u_w8s_s32_avx2_6x16x4",
    "bs_mm_a4u_w4b_s32_avx2_8x16x4",
    "bs_mm_a1u_w1b_s32_avx2_3x64x4",
    "bs_mm_a2u_w8s_s32_neon_4x48x1",
    "bs_mm_a1u_w4b_s32_neon_3x48x4",
    "bs_mm_a8u_w8s_s32_neon_dotprod_6x16x16",
)
FAMILIES = ("gcc", "clang")
KINDS = ("opcode", "register", "immediate", "offset", "target", "number")
FILLS = ("random", "zeros", "ones", "least and greatest")
MOST_STEPS, MOST_EMULATED = 600, 100
"""Sizes with more steps are not called, natively and under an emulator."""
SYSTEM_CALLS = (b"\x0f\x05", b"\x0f\x34", b"\xcd")
"""Instructions of x86 that would leave the process."""
LINE = 64
"""Bytes of a line of the cache; no instruction wants more alignment."""
SECONDS, EMULATED_SECONDS = 3, 30
"""Calls that take longer are wrong, as they do not end; natively and under an emulator."""
MEMORY = 0x40_0000_0000
"""Where an emulator has the buffers of a call."""
PAGE = 1 << 12
GENERAL_BITS = {"register": (*range(10), *range(16, 21)), "opcode": range(21, 32)}
"""Bits of a word of AArch64."""


@dataclass(frozen=True)
class Wrong:
    """A library with one bit changed: which kind of field, and the instruction in words."""

    kind: str
    instruction: str
    data: bytes


def kernel_named(name: str, variant: str | None = None) -> MatmulKernel:
    """Return a shipped kernel, or a variant of it."""
    return MatmulKernel(MATMUL.load_named(name, variant), KernelName.parse(name).spec)


def word_fields(ins: Any, kind: str) -> list[tuple[int, int]]:
    """Return the bits of an instruction of AArch64 that belong to a kind of field, as (byte, bit)."""
    name, vector = ins.mnemonic, ins.op_str[:1] in {"v", "{", "q", "d"}
    memory, jump = "[" in ins.op_str, name.startswith(("b.", "cb", "tb")) or name in {"b", "bl"}
    bits: Sequence[int] = ()
    if jump:
        bits = range(26) if kind == "target" and name in {"b", "bl"} else range(5, 24) if kind == "target" else ()
    elif kind in GENERAL_BITS:
        bits = GENERAL_BITS[kind]
    elif kind == ("offset" if memory else "immediate" if vector else "number") and "#" in ins.op_str:
        bits = range(10, 22)
    return [(bit // 8, bit % 8) for bit in bits]


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
    decoder = capstone.Cs(*(getattr(capstone, part) for part in table.disassembler))
    decoder.detail = True
    code = list(decoder.disasm(data[start : start + size], at))
    is_x86 = load(isa).table.arch == "x86_64"
    of = fields if is_x86 else word_fields
    places = {kind: [(ins, *bit) for ins in code for bit in of(ins, kind)] for kind in KINDS}
    kinds = [kind for kind in KINDS if places[kind]]
    for k in range(count):
        kind = kinds[k % len(kinds)]
        ins, byte, bit = rng.choice(places[kind])
        offset = start + ins.address - at + byte
        changed = bytearray(data)
        changed[offset] ^= 1 << bit
        if not (is_x86 and any(call in changed[offset - 2 : offset + 3] for call in SYSTEM_CALLS)):
            yield Wrong(kind, f"{ins.address:#x}: {ins.mnemonic} {ins.op_str}", bytes(changed))


def proved(path: Path, kernel: MatmulKernel, *, rule: bool) -> tuple[str, str]:
    """Return for which sizes the object is proved, in words, and why it is refused; one is empty.

    With `rule` the loop rule judges.
    """
    try:
        if rule:
            prove_all_sizes(path, kernel)
            return "proved for all sizes", ""
        return "proved for all sizes" if prove_object(path, kernel).loops else "proved for the listed sizes", ""
    except (BitsynthError, Inexact) as why:
        return "", str(why)


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


def native(path: Path, name: str) -> Callable[..., None]:
    """Return the function of a library, which takes numbers and arrays."""
    function = getattr(ctypes.CDLL(str(path)), name)
    function.restype = None
    function.argtypes = [ctypes.c_size_t] * 3 + [ctypes.c_void_p] * 5 + [ctypes.c_size_t]

    def call(sizes: list[int], rows: list[np.ndarray], arrays: list[np.ndarray], width: int) -> None:
        pointers = np.array([row.ctypes.data for row in rows] or [0], np.uintp)
        function(*sizes, pointers.ctypes.data, *(array.ctypes.data for array in arrays), width)

    return call


def emulated(path: Path, name: str, isa: Isa) -> Callable[..., None]:
    """Return the function of a library for another processor, which takes numbers and arrays."""
    from bitsynth.run.elf import read_image
    from bitsynth.run.unicorn import UnicornMachine

    table = architecture.find_architecture(isa.table.arch)
    assert table.emulator is not None
    image = read_image(path, table.bits, table.emulator)
    cpu = architecture.emulated_cpu(table.emulator.unicorn.cpu, isa.requirements().cc_flags)
    machine = UnicornMachine(image, table.emulator.unicorn, cpu, False)
    for segment in image.segments:
        machine.map(segment.address, segment.data, segment.access)

    def call(sizes: list[int], rows: list[np.ndarray], arrays: list[np.ndarray], width: int) -> None:
        places, room = [], bytearray()
        for array in (*rows, *arrays):  # Each as far from a line as it is here.
            room += bytes(LINE + (array.ctypes.data - len(room)) % LINE)
            places.append(MEMORY + len(room))
            room += array.tobytes()
        pointers = np.array(places[: len(rows)] or [0], np.uint64).tobytes()
        room += bytes(-len(room) % LINE)
        at = MEMORY + len(room)
        room += pointers
        room += bytes(-len(room) % PAGE)
        machine.map(MEMORY, room, "rw")
        given = [*sizes, at, *places[len(rows) :], width]
        _, (after,) = machine.call(image.address(name), given, [(MEMORY, len(room))])
        machine.unmap(MEMORY, len(room))
        for place, array in zip(places, (*rows, *arrays), strict=True):
            first = place - MEMORY
            array[...] = np.frombuffer(after[first : first + len(array)], np.uint8)

    return call


def function_of(path: Path, name: str, isa: Isa) -> Callable[..., None]:
    """Return the function of a library, which takes numbers and arrays: native, or emulated."""
    return native(path, name) if isa.table.arch == features.arch() else emulated(path, name, isa)


def stored(call: Callable[..., None], kernel: Kernel, sizes: Sizes, fill: str, rng: np.random.Generator) -> bytes:
    """Return what a microkernel stores for one size and one kind of bytes; past the tiles too."""
    size = sizes.steps * kernel.row_bytes + 8
    rows = [placed(buffers(rng, fill, size), 8) for _ in range(kernel.rows * sizes.segments)]
    w = placed(buffers(rng, fill, sizes.tiles * sizes.all_steps * kernel.columns * kernel.column_bytes + 8), 8)
    g = placed(buffers(rng, "random", 4 * sizes.tiles * kernel.columns + 8), 4)
    h = placed(buffers(rng, "random", 4 * kernel.rows + 8), 4)
    width = kernel.columns * sizes.tiles + 4
    c = placed(np.full(4 * width * kernel.rows + 4096, 0xA5, np.uint8), 4)
    call([sizes.tiles, sizes.segments, sizes.steps], rows, [w, g, h, c], width)
    return c.tobytes() + w.tobytes() + g.tobytes() + h.tobytes() + b"".join(row.tobytes() for row in rows)


def results(path: Path, name: str, kernel: Kernel) -> Iterator[bytes]:
    """Yield what the function stores, of each size and each kind of bytes; past the tiles too."""
    isa = load(kernel.isa)
    most_steps = MOST_STEPS if isa.table.arch == features.arch() else MOST_EMULATED
    call = function_of(path, name, isa)
    rng = np.random.default_rng(1)
    for sizes in sizes_of(kernel):
        if sizes.all_steps <= most_steps:
            for fill in FILLS:
                yield stored(call, kernel, sizes, fill, rng)


def computes_the_same(path: Path, right: list[bytes], name: str, kernel: Kernel) -> bool:
    """Return whether a library stores what is right for all inputs that are tried, in a process of its own."""
    seconds = SECONDS if load(kernel.isa).table.arch == features.arch() else EMULATED_SECONDS
    child = os.fork()
    if not child:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        try:
            os._exit(any(a != b for a, b in zip(results(path, name, kernel), right, strict=True)))
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def judged(
    name: str, family: str, count: int, seed: int, folder: Path, *, rule: bool = False
) -> Counter[tuple[str, str]]:
    """Return how many changed objects of a kernel there are of each kind and verdict."""
    kernel = kernel_named(name)
    unchanged = kernel.library(family)
    out: Counter[tuple[str, str]] = Counter()
    _, why = proved(unchanged, kernel, rule=rule)
    if why:
        print(f"{name} by {family}, unchanged: {why}", flush=True)
        if rule:
            return out
        out["none", "WRONG: refused, and right"] += 1
    rng = random.Random(f"{seed} {name} {family}")
    right = list(results(unchanged, name, kernel.entry.kernel))
    for k, wrong in enumerate(wrong_objects(unchanged, name, kernel.spec.isa, count, rng)):
        path = folder / f"{name}_{family}_{k}.so"
        path.write_bytes(wrong.data)
        same, (sizes, _) = computes_the_same(path, right, name, kernel.entry.kernel), proved(path, kernel, rule=rule)
        verdict = "computes the same, " if same else "computes something else, "
        out[wrong.kind, verdict + (sizes or "refused")] += 1
        if sizes and not same:
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
    parser.add_argument("--rule", action="store_true", help="the loop rule judges alone")
    given = parser.parse_args()
    total: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.kernels:
            for family in FAMILIES:
                counts = judged(name, family, given.count, given.seed, Path(folder), rule=given.rule)
                total += counts
                print(f"{name} by {family}: {sum(counts.values())} objects", flush=True)
    for (kind, verdict), number in sorted(total.items()):
        print(f"{kind:<10} {verdict:<50} {number:>5}")
    return int(any(verdict.startswith("WRONG") for _, verdict in total))


if __name__ == "__main__":
    sys.exit(main())
