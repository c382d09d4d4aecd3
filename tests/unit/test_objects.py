"""Machine code of kernels, compared with their proved programs; and machine code that was changed."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bitsynth import toolchain
from bitsynth.cli import main
from bitsynth.errors import Refuted
from bitsynth.host import features
from bitsynth.isa.domains.terms import TermDomain
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.memory import CallMemory, MemoryPlace, NotShown
from bitsynth.objects.values import Contents
from bitsynth.store.matmul import MATMUL

pytestmark = pytest.mark.toolchains

BYTES, LOOKUP = "bs_mm_a8u_w8s_s32_avx2_6x16x2", "bs_mm_a2u_w1b_s32_avx2_3x64x4"
ROOT = Path(__file__).parents[2]


def kernel_of(name):
    return MatmulKernel(MATMUL.load_named(name), KernelName.parse(name).spec)


def library(name, family, flags=()):
    """The library that a compiler builds of the kernel, its self-test included."""
    if features.arch() != "x86_64":
        pytest.skip("needs an x86_64 machine")
    kernel, isa = kernel_of(name), load("avx2")
    found = [c for c in toolchain.compilers(isa) if c.family == family]
    if not found:
        pytest.skip(f"{family} is not installed")
    given = ("-DBITSYNTH_NO_MAIN", *flags)
    return toolchain.compile_for(isa, kernel.files, needs=kernel.needs, flags=given, compiler=found[0])


def prove(path, name):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects.prove import prove_object

    kernel = kernel_of(name).entry.kernel
    return prove_object(path, name, kernel, row_terms=kernel.has_row_terms)


def test_terms_of_what_compilers_exchange_are_equal():
    d = TermDomain()
    x, y = d.atom("x", 16), d.atom("y", 16)
    assert d.add(x, x, 16) is d.shl(x, 1, 16)
    assert d.add(x, d.sub(y, x, 16), 16) is y
    assert d.and_(x, 0xFF00, 16) is d.shl(d.lshr(x, 8, 16), 8, 16)
    assert d.and_(x, y, 16) is d.and_(y, x, 16)
    assert d.xor(x, x, 16) == 0
    assert d.sext(d.trunc(x, 16, 8), 8, 16) is not x
    assert d.sub(x, y, 16) is not d.sub(y, x, 16)


def test_moves_are_no_operations():
    values, isa = Contents(), load("avx2")
    x = values.memory("w", 0, 32)
    swapped = values.apply(isa["permute4x64.u64x4"], [x], 0b01001110)
    assert swapped.data == x.data[16:] + x.data[:16]
    assert values.apply(isa["permute4x64.u64x4"], [swapped], 0b01001110) is x
    y = values.memory("g", 0, 32)
    assert values.apply(isa["add.u32x8"], [x, y]) is values.apply(isa["add.s32x8"], [y, x])
    assert values.apply(isa["sub.u32x8"], [x, y]) is not values.apply(isa["sub.u32x8"], [y, x])
    assert values.apply(isa["add.u32x8"], [x, y]) is not values.apply(isa["add.u16x16"], [x, y])


def test_memory_outside_of_buffers_is_refused():
    values = Contents()
    memory = CallMemory(values, [MemoryPlace("w", 4096, 64), MemoryPlace(("c", 0), 8192, 32, writable=True)])
    assert memory.load(4096 + 32, 32) is values.memory("w", 32, 32)
    for place in (4095, 4096 + 33, 0):
        with pytest.raises(NotShown, match="belong to no buffer"):
            memory.load(place, 32)
    with pytest.raises(NotShown, match="are written"):
        memory.store(4096, values.number(0, 8))
    with pytest.raises(NotShown, match="before they are written"):
        memory.load(8192, 32)


@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_a_compiled_kernel_is_proved(family):
    proof = prove(library(BYTES, family), BYTES)
    assert len(proof.sizes) > 20
    assert proof.registers > 300
    assert proof.instructions > 100


def test_the_command_says_for_which_sizes(capsys):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    main(["verify", BYTES, "--object", str(library(BYTES, "gcc")), "--json"])
    assert '"sizes"' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_a_kernel_with_nested_loops_is_proved(family):
    assert prove(library(LOOKUP, family), LOOKUP).registers > 1000


def mutants(path, name, count, seed):
    """Yield the function's code with one bit of an instruction changed: opcode, register, number, distance, target."""
    from elftools.elf.elffile import ELFFile

    from bitsynth.objects.elf import read_object

    data = path.read_bytes()
    address, size = read_object(path).functions[name]
    with path.open("rb") as file:
        start = next(iter(ELFFile(file).address_offsets(address)))
    rng = random.Random(seed)
    for _ in range(count):
        changed = bytearray(data)
        changed[start + rng.randrange(size)] ^= 1 << rng.randrange(8)
        yield bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_changed_objects_that_are_proved_compute_the_same(family, tmp_path):
    path, name = library(BYTES, family), BYTES
    refused, right = 0, []
    for k, data in enumerate(mutants(path, name, 60, seed=2026)):
        mutant = tmp_path / f"mutant{k}.so"
        mutant.write_bytes(data)
        try:
            prove(mutant, name)
            right.append(mutant)
        except Refuted:
            refused += 1
    code = "import ctypes, sys; sys.exit(getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])())"
    for mutant in right:
        subprocess.run([sys.executable, "-c", code, mutant, f"{name}_selftest"], check=True, timeout=60)
    assert refused > 30


def test_the_trusted_base_has_as_many_lines_as_the_page_says():
    text = (ROOT / "docs/concepts/soundness.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \|.*\| (\d+) \|$", text, re.MULTILINE)
    assert len(rows) > 5
    for pattern, lines in rows:
        files = [f for f in ROOT.glob(pattern) if f.is_file()]
        total = sum(len(f.read_text().splitlines()) for f in files)
        assert abs(total - int(lines)) <= 100, f"{pattern}: {total} lines"


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    from bitsynth.objects.elf import read_object

    with pytest.raises(Exception, match=r"pip install 'bitsynth\[objects\]'"):
        read_object(tmp_path / "x.o")
