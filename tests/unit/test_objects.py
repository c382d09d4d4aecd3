"""Machine code of kernels, compared with their proved programs; and machine code that was changed."""

import importlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from bitsynth.cli import main
from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.host import features
from bitsynth.isa.domains.terms import TermDomain, TermPayload
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.declared import machine_table
from bitsynth.objects.examples import different
from bitsynth.objects.memory import CallMemory, MemoryPlace, NotShown
from bitsynth.objects.sums import Sums
from bitsynth.objects.values import Contents
from bitsynth.store.matmul import MATMUL

pytestmark = pytest.mark.toolchains

BYTES, LOOKUP = "bs_mm_a8u_w8s_s32_avx2_6x16x2", "bs_mm_a2u_w1b_s32_avx2_3x64x4"
WIDE = ["bs_mm_a8u_w8s_s32_avx512_6x64x4", "bs_mm_a8u_w1b_s32_avx512_16x16x32", "bs_mm_a1u_w4b_s32_avx512_3x192x6"]
"""Dot products, operands in memory that are read into every lane, and permutations of bytes."""
SHARED, SHARED_WIDE = "bs_mm_a2u_w2b_s32_avx2_3x64x4", "bs_mm_a2u_w4b_s32_avx512_3x192x6"
"""Two passes share accumulators. In the wide one the second may begin with addresses of other rows in registers."""
ROOT = Path(__file__).parents[2]
OUT = 1 << 36
"""The address of what a function of a test writes."""


def kernel_of(name):
    return MatmulKernel(MATMUL.load_named(name), KernelName.parse(name).spec)


def library(name, family):
    """The library that a compiler builds of the kernel."""
    if features.arch() != "x86_64":
        pytest.skip("needs an x86_64 machine")
    try:
        return kernel_of(name).library(family)
    except ToolError:
        pytest.skip(f"{family} is not installed")


def prove(path, name, *, all_sizes=False):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects.prove import prove_object

    return prove_object(path, kernel_of(name), all_sizes=all_sizes)


def assembled(folder, text, *flags):
    """The object, or with flags the library, of an assembler's text."""
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    if features.arch() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs gcc for x86_64")
    (folder / "f.s").write_text(text)
    subprocess.run(["gcc", *(flags or ("-c",)), "f.s", "-o", "f.o"], cwd=folder, check=True)
    return folder / "f.o"


@cache
def kernel_text():
    """The assembler text that gcc makes of the kernel."""
    if features.arch() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs gcc for x86_64")
    with tempfile.TemporaryDirectory() as folder:
        for file, text in kernel_of(BYTES).files.items():
            (Path(folder) / file).write_text(text)
        flags = ["-std=c11", "-O2", "-mavx2", "-fPIC", "-S"]
        subprocess.run(["gcc", *flags, f"{BYTES}.c", "-o", "kernel.s"], cwd=folder, check=True)
        return (Path(folder) / "kernel.s").read_text()


def kernel_object(folder, edit):
    """The object of the kernel's assembler text, edited."""
    return assembled(folder, edit(kernel_text()))


def at_entry(instructions):
    """An edit that puts instructions at the entry of the kernel's function."""
    return lambda text: text.replace(f"\n{BYTES}:\n", f"\n{BYTES}:\n{instructions}\n")


def prove_rule(path, name=BYTES):
    """What the loop rule shows of the kernel's object; the chosen sizes are not run."""
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    pytest.importorskip("z3")
    from bitsynth.objects.prove import prove_all_sizes

    return prove_all_sizes(path, kernel_of(name))


def run_code(folder, body, isa="avx512", data=""):
    """The memory after a function with this body was run; `rdi` is the address of 64 bytes that it may write."""
    path = assembled(folder, f".globl f\n.type f, @function\nf:\n{body}\nret\n.size f, .-f\n{data}\n")
    from bitsynth.objects.elf import read_object
    from bitsynth.objects.processor import CodeProcessor

    values = Contents()
    memory = CallMemory(values, [MemoryPlace("c", OUT, 64, writable=True)])
    file = read_object(path, machine_table(load(isa)))
    memory.arrays += file.constants
    CodeProcessor(file, load(isa), values, memory).call(file.function("f"), [OUT], stack=(1 << 40) + 16, back=1)
    return memory


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("mov $0x1122, %eax\nmov $0x33, %cl\nmov %cl, %ah", [0x22, 0x33, 0, 0]),
        ("mov $-1, %rax\nmov %al, %dl\nmov $0, %ah", [0xFF, 0, 0xFF, 0xFF]),
        ("mov %ecx, %eax\nmov $7, %al\nmov %edx, %esi\nmov $3, %sil\nand %esi, %eax\nmovzbl %al, %eax", [3, 0, 0, 0]),
        ("mov $5, %eax\nkmovd %eax, %k1\nkshiftld $3, %k1, %k0\nkmovd %k0, %eax", [40, 0, 0, 0]),
        ("mov $9, %eax\nkmovd %eax, %k1\nkshiftrd $3, %k1, %k0\nkmovd %k0, %eax", [1, 0, 0, 0]),
    ],
)
def test_parts_of_general_registers_and_masks(tmp_path, body, want):
    """The second byte is written alone; a gate of two known bytes is known, whatever bytes are above them."""
    memory = run_code(tmp_path, f"{body}\nmov %eax, (%rdi)")
    assert [memory.written[OUT + k] for k in range(4)] == want


def test_shifts_by_more_bits_than_there_are_are_refused(tmp_path):
    with pytest.raises(NotShown, match="it shifts by more bits than there are"):
        run_code(tmp_path, "kshiftld $32, %k1, %k0")


def test_sums_and_products_that_move_bytes(tmp_path):
    """A byte is spread by a product; two numbers without a byte in common are added."""
    spread = "imul $0x01010101, %eax, %eax\nmov %eax, (%rdi)"
    memory = run_code(tmp_path, f"mov (%rsp), %rdx\nmovzbl %dl, %eax\n{spread}")
    assert len({memory.written[OUT + k] for k in range(4)}) == 1
    shifted = "shl $8, %eax\nadd %ecx, %eax\nmov %eax, (%rdi)"
    memory = run_code(tmp_path, f"mov (%rsp), %rdx\nmovzbl %dl, %eax\nmov %eax, %ecx\n{shifted}")
    first, second, *above = (memory.written[OUT + k] for k in range(4))
    assert (first == second, above) == (True, [0, 0])
    memory = run_code(tmp_path, "mov (%rsp), %rdx\nmovzwl %dx, %eax\nadd %eax, %eax\nmov %eax, (%rdi)")
    assert memory.written[OUT] != memory.written[OUT + 1]


def test_terms_of_what_compilers_exchange_are_equal():
    d = TermDomain()
    x, y = d.atom("x", 16), d.atom("y", 16)
    assert d.add(x, x, 16) is d.shl(x, 1, 16)
    assert d.add(x, d.sub(y, x, 16), 16) is y
    assert d.add(d.shl(d.add(x, y, 16), 1, 16), y, 16) is d.add(d.add(x, x, 16), d.mul(3, y, 16), 16)
    assert d.and_(x, 0xFF00, 16) is d.shl(d.lshr(x, 8, 16), 8, 16)
    assert d.and_(x, y, 16) is d.and_(y, x, 16)
    assert d.xor(x, x, 16) == 0
    assert d.sext(d.trunc(x, 16, 8), 8, 16) is not x
    assert d.sub(x, y, 16) is not d.sub(y, x, 16)


def test_gates_are_equal_if_and_only_if_they_are_one_function():
    d, rng = TermDomain(), random.Random(3)
    unknowns = [d.atom(name, 8) for name in "abc"]
    tables = [sum((row >> k & 1) << row for row in range(8)) for k in range(3)]
    gates = {d.and_: lambda x, y: x & y, d.or_: lambda x, y: x | y, d.xor: lambda x, y: x ^ y}
    terms: list[TermPayload] = [*unknowns, 0xFF]
    functions = [*tables, 0xFF]
    for _ in range(2000):
        gate, left, right = rng.choice([*gates]), rng.randrange(len(terms)), rng.randrange(len(terms))
        terms.append(gate(terms[left], terms[right], 8))
        functions.append(gates[gate](functions[left], functions[right]))
    by_function = dict(zip(functions, terms, strict=True))
    assert len(by_function) > 200
    assert all(by_function[f] is x or by_function[f] == x for f, x in zip(functions, terms, strict=True))
    assert len({*by_function.values()}) == len(by_function)


def test_multiples_are_equal_however_they_are_added():
    d = TermDomain()
    wide, low, data = d.atom("wide", 64), d.atom("low", 8), [d.atom(("byte", k), 8) for k in range(4)]
    for x in (d.trunc(wide, 64, 32), d.join(data, 8), d.zext(low, 8, 32), d.atom("x", 32)):
        five = d.mul(5, x, 32)
        assert d.add(x, d.shl(x, 2, 32), 32) is five
        assert d.sub(d.shl(d.add(x, d.shl(x, 1, 32), 32), 1, 32), x, 32) is five
        assert d.sub(five, d.shl(x, 2, 32), 32) is x
    nibble = d.zext(d.trunc(low, 8, 4), 4, 32)
    assert d.shl(nibble, 2, 32) is not d.shl(d.zext(low, 8, 32), 2, 32)
    assert d.add(nibble, d.shl(nibble, 2, 32), 32) is not d.mul(5, d.zext(low, 8, 32), 32)
    assert d.shl(d.trunc(wide, 64, 32), 4, 32) is d.shl(d.cut(wide, 64, 0, 32), 4, 32)
    assert d.shl(d.cut(wide, 64, 0, 32), 4, 32) is not d.shl(d.cut(wide, 64, 1, 33), 4, 32)


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


def first_result(function):
    """The function, of which each call after the first gives the first one's result."""
    results = list[object]()

    def call(*args, **options):
        if not results:
            results.append(function(*args, **options))
        return results[0]

    return call


def test_the_command_says_for_which_sizes(capsys, monkeypatch):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects import packers
    from bitsynth.objects import prove as module

    def no_rule(*_, **__):
        raise NotShown("the loop at 0x10 is of no kind that is known")

    monkeypatch.setattr(module, "prove_all_sizes", no_rule)
    for place, name in ((module, "prove_object"), (packers, "prove_packers")):
        monkeypatch.setattr(place, name, first_result(getattr(place, name)))
    path = str(library(BYTES, "gcc"))
    main(["verify", BYTES, "--object", path, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert {"tiles": 1, "segments": 2, "steps": 1} in facts["sizes"]
    assert facts["instructions"] > 100
    assert not facts["all_sizes"]
    main(["verify", BYTES, "--object", path])
    out = capsys.readouterr().out
    assert "other sizes are not proved" in out
    assert "the loop at 0x10 is of no kind that is known" in out


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_a_kernel_is_proved_for_all_sizes(family, capsys):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    main(["verify", BYTES, "--object", str(library(BYTES, family))])
    out = capsys.readouterr().out
    assert "for every K, and for all numbers of segments and tiles" in out
    assert "other sizes" not in out


@pytest.mark.slow
@pytest.mark.parametrize("name", [LOOKUP, WIDE[0], "bs_mm_a8u_w8s_s32_avxvnni_6x16x4"])
def test_kernels_of_other_loops_and_sets_are_proved_for_all_sizes(name):
    proof = prove(library(name, "gcc"), name, all_sizes=True)
    assert proof.loops is not None, proof.not_all
    assert len(proof.loops.heads) > 2
    assert proof.loops.paths > 20


@pytest.mark.slow
def test_passes_that_share_accumulators_are_proved_for_all_sizes():
    """Two passes over each block of steps, with a loop inside."""
    assert prove_rule(library(SHARED, "gcc"), SHARED).paths > 100


LATE_PASSES = {
    "another offset": ("offset = block_offset;", "offset = block_offset + (steps_left == 72240) * 16;"),
    "other weights": ("column1 = column;", "column1 = column + (steps_left == 72240) * 64;"),
    "a shorter second pass": ("size_t left = block;", "size_t left = block - (steps_left == 72240);"),
    "another segment": ("segment = block_segment;", "if (steps_left != 72240) segment = block_segment;"),
}
"""Changes of a later block of passes that share accumulators."""


@pytest.mark.slow
@pytest.mark.parametrize("change", LATE_PASSES)
def test_a_later_block_that_is_wrong_is_not_proved_for_all_sizes(change, tmp_path):
    pytest.importorskip("capstone")
    with pytest.raises(NotShown, match=rf"{SHARED} at 0x\w+: "):
        prove_rule(compiled(tmp_path, SHARED, *LATE_PASSES[change]), SHARED)


AGAIN = (
    "/* Pass 1. */\n            {\n                segment = block_segment;\n                steps_here = block_here;"
)
AT_SEGMENT_END = {
    "as it is": "",
    "the rows of the old segment": "if (steps_left == 72240 && steps_here == 0) steps_here = 1;",
}
"""Changes of a pass that begins a later block again, where that begins with a segment."""


@pytest.mark.slow
@pytest.mark.parametrize("change", AT_SEGMENT_END)
def test_a_pass_begins_a_block_again_at_the_end_of_a_segment(change, tmp_path):
    pytest.importorskip("capstone")
    path = compiled(tmp_path, SHARED_WIDE, AGAIN, AGAIN + AT_SEGMENT_END[change])
    if not AT_SEGMENT_END[change]:
        assert prove_rule(path, SHARED_WIDE).paths > 100
        return
    with pytest.raises(NotShown, match=rf"{SHARED_WIDE} at 0x\w+: "):
        prove_rule(path, SHARED_WIDE)


LATE = {
    "a counter of 16 bits": ("steps_left > 0;)", "(uint16_t)steps_left > 0;)"),
    "an advance that changes": (
        "offset += ROW_BYTES;", "offset += offset < 1000000 ? ROW_BYTES : ROW_BYTES + 4;"),
    "an offset of 32 bits": (
        "size_t steps_here = steps, offset = 0;", "size_t steps_here = steps; uint32_t offset = 0;"),
    "a return for a large K": (
        "all_steps = segments * steps;", "all_steps = segments * steps; if (all_steps > 100000) return;"),
    "a tile left out": ("tiles > 0; --tiles)", "tiles > 0; tiles -= tiles == 1000 ? 2 : 1)"),
    "columns of 32 bits": ("c += COLUMNS;", "c += COLUMNS; ldc = (uint32_t)ldc;"),
    "a segment left out": (
        "const size_t block", "if (segment - a == 60000) segment += ROWS; const size_t block"),
    "the second block's start": ("start = c;", "start = g;"),
    "the second block's rows": ("start_ld = ldc;", "start_ld = 0;"),
    "a longer block": ("16777216 ? steps_left : 16777216", "16777216 ? steps_left : 16777217"),
    "a late column": ("g += COLUMNS;", "g += tiles == 77777 ? 0 : COLUMNS;"),
    "a step left out": (
        "count -= run;", "count -= run; if (run == 20000) --run;"),
    "a counter in memory": (
        "for (; tiles > 0; --tiles) {",
        "volatile size_t n = 0; for (; tiles > 0; --tiles) { n = n + 1; if (n == 5000) w += 64;"),
}  # fmt: skip
"""Changes of the kernel's C that are wrong for sizes that are not run alone: what is replaced, and by what."""


def compiled(folder, name, old, new):
    """The object that gcc makes with -O2 of a kernel's C in which `old` is replaced by `new`."""
    return compiled_kernel(folder, kernel_of(name), old, new, "-O2")


def compiled_kernel(folder, kernel, old, new, level):
    """The object that gcc makes with optimization `level` of a kernel's C in which `old` is replaced by `new`."""
    if features.arch() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs gcc for x86_64")
    for file, text in kernel.files.items():
        assert file != f"{kernel.name}.c" or old in text
        (folder / file).write_text(text.replace(old, new) if file == f"{kernel.name}.c" else text)
    flags = ["-std=c11", level, *kernel.needs.cc_flags, "-fPIC", "-w", "-c"]
    subprocess.run(["gcc", *flags, f"{kernel.name}.c", "-o", "kernel.o"], cwd=folder, check=True)
    return folder / "kernel.o"


@pytest.mark.slow
@pytest.mark.parametrize("change", LATE)
def test_what_is_wrong_for_other_sizes_alone_is_not_proved_for_all(change, tmp_path):
    """The sizes that are run do not show it, and the loop rule does not hold."""
    pytest.importorskip("capstone")
    proof = prove(compiled(tmp_path, BYTES, *LATE[change]), BYTES, all_sizes=True)
    assert proof.loops is None
    assert re.search(rf"{BYTES} at 0x\w+: ", proof.not_all)


NARROW = {
    "tiles of 16 bits": "xorl %eax, %eax\nleaw (%rdi), %ax\nmovq %rax, -24(%rsp)\nmovq -24(%rsp), %rdi",
    "steps of 32 bits": "leal (%rdx), %eax\nmovq %rax, -24(%rsp)\nmovq -24(%rsp), %rdx",
    "steps of 32 bits through a vector": "leal (%rdx), %eax\nvmovq %rax, %xmm0\nvmovq %xmm0, %rdx",
}


@pytest.mark.parametrize("change", NARROW)
def test_a_part_of_a_number_is_not_taken_for_it(change, tmp_path):
    with pytest.raises(NotShown, match="a part of a number that depends on sizes is computed with"):
        prove_rule(kernel_object(tmp_path, at_entry(NARROW[change])))


def test_a_shift_by_0_leaves_flags_as_they_are(tmp_path):
    compare = "movl $5000, %eax\ncmpq %rdi, %rax\nmovq %rdi, %rax\nincq %rax\nshlq $0, %rax\njnc 1f\nret\n1:"
    with pytest.raises(NotShown, match="jae: it depends on flags that have no value"):
        prove_rule(kernel_object(tmp_path, at_entry(compare)))


def test_row_terms_that_the_kernel_does_not_have_are_not_read(tmp_path):
    path = kernel_object(tmp_path, at_entry("movq 8(%rsp), %rax\nvmovdqu (%rax), %xmm0"))
    with pytest.raises(Refuted, match="16 bytes that belong to no buffer are read, 0 bytes from the start of h"):
        prove(path, BYTES)
    from bitsynth.objects.affine import AffineNumber
    from bitsynth.objects.affine_memory import AffineMemory

    memory = AffineMemory(Contents(), kernel=kernel_of(BYTES).entry.kernel, row_terms=False)
    memory.load(AffineNumber.of_unknown("&h"), 16)
    with pytest.raises(NotShown, match=r"16 bytes of h \+ 0 may lie outside of it"):
        memory.check_accesses(memory.accesses, memory.facts)


def test_a_place_whose_end_leaves_64_bits_lies_outside():
    """The end of what is read here is a small number, modulo 2**64."""
    pytest.importorskip("z3")
    from bitsynth.objects.affine import AffineNumber
    from bitsynth.objects.affine_memory import AffineMemory

    memory = AffineMemory(Contents(), kernel=kernel_of(BYTES).entry.kernel)
    steps = AffineNumber.of_unknown("every_step")
    memory.facts.assume(memory.facts.term(steps) >= 1)
    memory.load(AffineNumber.of_unknown("&w"), 32)
    memory.check_accesses(memory.accesses, memory.facts)
    memory.load(AffineNumber.of_unknown("&w") + ((1 << 63) - 16), 32)
    with pytest.raises(NotShown, match=r"32 bytes of w \+ \d+ may lie outside of it"):
        memory.check_accesses(memory.accesses, memory.facts)


def test_what_was_asked_of_facts_holds_where_there_are_more():
    """Facts are a tree: paths have answers of their own, which are kept when a path is followed again."""
    pytest.importorskip("z3")
    from bitsynth.objects.affine import AffineNumber
    from bitsynth.objects.facts import LinearFact, LinearFacts, sum_is

    rng = random.Random(1)
    x, y = (AffineNumber.of_unknown(name) for name in "xy")
    numbers = range(-9, 10)
    for _ in range(10):
        facts = LinearFacts()
        facts.assume(*(facts.term(n) >= -9 for n in (x, y)), *(facts.term(n) <= 9 for n in (x, y)))
        facts.mark()
        for _ in range(10):
            facts.rewind()
            path: list[LinearFact] = []
            for _ in range(3):
                says = rng.choice(["at least 0", "0", "not 0"])
                new = sum_is(says, [x * rng.randint(-2, 2), rng.randint(-4, 4)], [y * rng.randint(-2, 2)])
                asked = [new, new.opposite, sum_is("at least 0", [x], [y], rng.randint(-4, 4))]
                worlds = [{"'x'": a, "'y'": b} for a in numbers for b in numbers]
                worlds = [world for world in worlds if all(fact.holds(world) for fact in path)]
                want = {fact for fact in asked if all(fact.holds(world) for world in worlds)}
                assert facts.find_implied(asked) == want
                if new.opposite not in want:
                    path.append(new)
                    facts.assume_fact(new)


def test_equalities_with_large_numbers_are_not_solved():
    pytest.importorskip("z3")
    from bitsynth.objects.affine import AffineNumber
    from bitsynth.objects.loops import _solve

    x, y, z = (AffineNumber.of_unknown(name) for name in "xyz")
    assert _solve([x - y * (1 << 20)]) == {"x": y * (1 << 20)}
    # With x = 2**27 y, modulo 2**64, 2**37 x is 0.
    assert "z" not in _solve([x - y * (1 << 27), z - x * (1 << 37)])
    assert "z" not in _solve([x - y * (1 << 27), z - x * (1 << 27)])


@pytest.mark.slow
def test_a_flush_that_is_missed_late_is_not_proved_for_all_sizes(tmp_path):
    pytest.importorskip("capstone")
    late = "if (all_steps - steps_left == 40 * 5460) steps_left -= steps_left < 5460 ? 0 : 5460;"
    proof = prove(
        compiled(tmp_path, LOOKUP, "steps_left -= block;", f"steps_left -= block; {late}"), LOOKUP, all_sizes=True
    )
    assert proof.loops is None


@pytest.mark.slow
def test_other_code_that_is_right_for_all_sizes_is_proved(tmp_path):
    """Runs of steps may end earlier: the next run has the rest."""
    pytest.importorskip("capstone")
    shorter = "if (run > 20000) run -= 1; count -= run;"
    proof = prove(compiled(tmp_path, BYTES, "count -= run;", shorter), BYTES, all_sizes=True)
    assert proof.loops is not None, proof.not_all


ONE_ROW = {
    "right": ("start = c;", "start = c;", True),
    "a later block starts anew": ("start = c;", "start = steps_left != 65536 ? c : g;", False),
    "a later tile starts as another": ("g += COLUMNS;", "g += tiles != 1000 ? COLUMNS : 0;", False),
}
"""Changes of the C of a kernel of one row, and whether it is right with them."""


@pytest.mark.parametrize("change", ONE_ROW)
def test_a_tile_that_stays_in_registers_is_proved_for_all_sizes_if_it_is_right(change, tmp_path):
    """Compilers keep the tile of one row from flush to flush, and count the steps of a segment up."""
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    pytest.importorskip("z3")
    from bitsynth.objects.prove import prove_all_sizes

    old, new, is_right = ONE_ROW[change]
    kernel = kernel_of(BYTES).with_rows(1)
    path = compiled_kernel(tmp_path, kernel, old, new, "-O3")
    if is_right:
        assert prove_all_sizes(path, kernel).paths > 20
    else:
        with pytest.raises(NotShown):
            prove_all_sizes(path, kernel)


def test_equalities_are_the_smallest_that_hold():
    from bitsynth.objects.affine import AffineNumber, number
    from bitsynth.objects.hull import AffineHull

    hull = AffineHull(["steps", "half", "pointer"], lambda name: "steps half pointer".index(str(name)))
    w, n = AffineNumber.of_unknown("w"), AffineNumber.of_unknown("n")
    assert hull.join({"steps": number(0), "half": number(0), "pointer": number(5)})
    assert hull.join({"steps": number(2), "half": number(1), "pointer": number(133)})
    assert not hull.join({"steps": 2 * n, "half": n, "pointer": 128 * n + 5})
    sums, zeros = hull.sums()
    assert sums["pointer"] == 64 * AffineNumber.of_unknown("steps") + 5
    assert zeros == [AffineNumber(0, {"steps": 1, "half": -2})]  # A half of a number is no sum of it.
    assert hull.join({"steps": number(2), "half": number(1), "pointer": w})
    hull.forget("pointer")
    assert set(hull.sums()[0]) == {"steps", "half"}


def test_of_numbers_that_change_together_the_one_that_changes_least_is_free():
    """Then no other is a fraction of it."""
    from bitsynth.objects.affine import AffineNumber
    from bitsynth.objects.hull import AffineHull

    n, k, step, count = map(AffineNumber.of_unknown, ("n", "k", "step", "count"))
    hull = AffineHull(["step", "pointer", "count"], lambda name: int(name != "step"))
    assert hull.join({"step": n, "pointer": 32 * n - 8 * k, "count": k})
    sums, zeros = hull.sums()
    assert not zeros
    assert sums == {"step": step, "pointer": 32 * step - 8 * count, "count": count}


def test_numbers_of_registers_are_compared_within_64_bits():
    pytest.importorskip("z3")
    from bitsynth.objects.affine import AffineNumber
    from bitsynth.objects.facts import LinearFacts

    facts, n = LinearFacts(), AffineNumber.of_unknown("n")
    facts.assume(facts.term(n) >= 0, facts.term(n) < 1 << 32)
    assert facts.implies(facts.comparison("below", n, 1 << 32))
    assert facts.implies(facts.comparison("below", n, -1))  # As a register has it, -1 is the greatest number.
    assert not facts.implies(facts.comparison("equal", n, 5))
    with pytest.raises(NotShown, match="may leave 64 bits"):
        facts.comparison("below", n - 1, 5)
    with pytest.raises(NotShown, match="may leave 64 bits"):
        facts.comparison("equal", n * (1 << 40), 0)
    small = facts.smaller(n, 7)
    assert facts.at_most(small, 7)
    assert not facts.equal(small, 7)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_a_kernel_with_nested_loops_is_proved(family):
    assert prove(library(LOOKUP, family), LOOKUP).registers > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_a_kernel_of_wide_vectors_is_proved(family, name):
    assert prove(library(name, family), name).registers > 500


def test_each_mnemonic_with_a_tied_operand_has_an_order():
    """Of two mnemonics of one form the result may replace different operands."""
    isa = load("avx512")
    order = machine_table(isa).order
    names = {m for instr in isa.instrs.values() if instr.tied and not instr.floats for m in instr.mnemonics}
    assert {name for name in names if name.startswith("vpermi2")} <= set(order)


@pytest.fixture
def wrong_objects(monkeypatch):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("wrong_objects")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_changed_objects_that_compute_something_else_are_refused(family, tmp_path, wrong_objects):
    library(BYTES, family)
    counts = wrong_objects.judged(BYTES, family, 30, 2026, tmp_path)
    assert not [what for what in counts if "WRONG" in what[1]]
    assert sum(number for (_, verdict), number in counts.items() if verdict.endswith("else, refused")) > 10


def changed(path, to, at, data):
    """A copy of a file with other bytes at `at`."""
    old = path.read_bytes()
    to.write_bytes(old[:at] + data + old[at + len(data) :])
    return to


@pytest.fixture
def refusal(ended):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    return lambda code, path, name=BYTES: ended(code, "verify", name, "--object", str(path))[1]


@pytest.mark.parametrize("option", [["--model", "x.onnx"], ["--no-z3"], ["--rlimit", "9"]])
def test_options_of_other_proofs_are_refused(ended, option):
    message = ended(2, "verify", BYTES, "--object", "x.o", *option)[1]
    assert f"{option[0]} is not for machine code" in message


def test_what_is_no_object_of_the_kernel_is_bad_input(refusal, tmp_path):
    path, other = library(BYTES, "gcc"), tmp_path / "other.so"
    other.write_text("no object")
    assert "want an ELF object or library" in refusal(2, other)
    assert "other.so" in refusal(2, changed(path, other, 18, b"\xb7\x00"))
    assert "No such file" in refusal(2, tmp_path / "missing.so")
    assert f"has no function {LOOKUP}; it has " in refusal(2, path, LOOKUP)
    assert "want an object or a library of EM_AARCH64" in refusal(2, path, "bs_mm_a1u_w1b_s32_neon_12x8x64")
    assert "objects of arm cannot be proved" in refusal(2, path, "bs_mm_a1u_w1b_s32_armv7_neon_6x4x64")


DOUBLED, SHIFTED = "bs_mm_a8b_w8s_s32_avx2_6x16x2", "bs_mm_a4u_w4s_s32_avx2_8x16x4"
"""Kernels whose encodings double products, or shift finished tiles."""


@pytest.mark.parametrize("name", [DOUBLED, SHIFTED])
def test_kernels_that_double_or_shift_their_products_are_proved(name):
    assert prove(library(name, "gcc"), name).registers > 100


@pytest.mark.parametrize("wrong", ["both = _mm256_srai_epi32(both, 2);", "t5 = _mm256_srai_epi32(t5, 2);"])
def test_another_shift_is_refused(wrong, tmp_path):
    """With no step, and at the last flush."""
    path = compiled(tmp_path, SHIFTED, wrong.replace("2);", "1);"), wrong)
    with pytest.raises(Refuted, match="is not what the proved program computes"):
        prove(path, SHIFTED)


def test_a_truncated_object_is_bad_input(refusal, tmp_path):
    data, other = library(BYTES, "gcc").read_bytes(), tmp_path / "other.so"
    for size in (0, 3, 20, 63, 64, 1000, len(data) // 2, len(data) - 1000, len(data) - 1):
        other.write_bytes(data[:size])
        assert refusal(2, other).startswith("error: ")


def test_a_stripped_object_is_bad_input(refusal, tmp_path):
    if features.arch() != "x86_64" or not (shutil.which("gcc") and shutil.which("strip")):
        pytest.skip("gcc is not installed")
    (tmp_path / "f.c").write_text("void f(void) {}")
    subprocess.run(["gcc", "-c", "f.c"], cwd=tmp_path, check=True)
    subprocess.run(["strip", "f.o"], cwd=tmp_path, check=True)
    assert f"has no function {BYTES}; it has no symbols" in refusal(2, tmp_path / "f.o")


def test_an_instruction_that_is_not_known_is_named(refusal, tmp_path):
    from bitsynth.objects.elf import read_object

    path = library(BYTES, "gcc")
    at, _ = read_object(path, machine_table(load("avx2"))).functions[BYTES]
    cpuid, none = b"\x0f\xa2", b"\x06"
    message = refusal(1, changed(path, tmp_path / "other.so", at, cpuid))
    assert f"{BYTES} at {at:#x}: cpuid: no declaration of this instruction" in message
    assert f"at {at:#x}: no instruction" in refusal(1, changed(path, tmp_path / "other.so", at, none))


def test_a_refusal_has_bytes_on_which_the_object_is_wrong(refusal, tmp_path):
    from bitsynth.objects.elf import read_object

    path, add, sub = library(BYTES, "gcc"), b"\xfe", b"\xfa"
    capstone = pytest.importorskip("capstone")
    at, size = read_object(path, machine_table(load("avx2"))).functions[BYTES]
    code = path.read_bytes()[at : at + size]  # The code of a small library is at its address in the file.
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    sums = [ins for ins in decoder.disasm(code, at) if ins.mnemonic == "vpaddd"]
    place = sums[0].address + bytes(sums[0].bytes).index(add)
    message = refusal(1, changed(path, tmp_path / "other.so", place, sub))
    assert re.search(r"error: .* with tiles 1, .* at 0x\w+: vmovdqu .*: row \d+, columns .* byte \d+ = 0x", message)
    assert re.search(r"element \d+ is -?\d+, the program's -?\d+", message)


def test_an_example_of_a_difference_is_one():
    values, isa = Contents(), load("avx2")
    x, y = values.memory("w", 0, 32), values.memory("g", 0, 32)
    more, less = values.apply(isa["add.u32x8"], [x, y]), values.apply(isa["sub.u32x8"], [x, y])
    example = different(values, more, less)
    assert example is not None
    g = sum(example.memory.get(("g", 4 * example.lane + k), 0) << 8 * k for k in range(4))
    w = sum(example.memory.get(("w", 4 * example.lane + k), 0) << 8 * k for k in range(4))
    assert (example.stored - w - g) % 2**32 == (example.computed - w + g) % 2**32 == 0
    assert len(example.memory) == 1
    assert different(values, more, values.apply(isa["add.u32x8"], [y, x])) is None


def test_a_function_of_another_object_has_no_code(tmp_path):
    """A call of it must not become a call of the next instruction, as a field without an address would be."""
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects.elf import read_object
    from bitsynth.objects.processor import CodeProcessor

    if features.arch() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs an x86_64 machine")
    source = tmp_path / "f.c"
    source.write_text("void other(void); void f(void) { other(); }")
    subprocess.run(["gcc", "-O2", "-fno-pic", "-fno-optimize-sibling-calls", "-c", "f.c"], cwd=tmp_path, check=True)
    file, values, isa = read_object(tmp_path / "f.o", machine_table(load("avx2"))), Contents(), load("avx2")
    with pytest.raises(NotShown, match="it needs other, which is in another object"):
        CodeProcessor(file, isa, values, CallMemory(values)).call(file.function("f"), [], stack=1 << 40, back=1)


def test_numbers_of_other_objects_are_not_known(tmp_path):
    with pytest.raises(NotShown, match="it needs number, which is in another object"):
        run_code(tmp_path, "lea number(%rip), %rax")
    with pytest.raises(SpecError, match="constants hold the address of number, of another object"):
        run_code(tmp_path, "nop", data=".section .rodata\n.long number")
    run_code(tmp_path, "movq $number, %rax\nmovb $1, (%rdi, %rax)", data=".globl number\n.set number, 63")
    with pytest.raises(NotShown, match="belong to no buffer"):
        run_code(tmp_path, "movq $number, %rax\nmovb $1, (%rdi, %rax)", data=".globl number\n.set number, 64")


def test_a_name_that_other_objects_find_elsewhere_is_no_function(tmp_path):
    text = ".type f, @function\nf: ret\n.size f, .-f\n.globl g\ng: nop\nret\n"
    from bitsynth.objects.elf import read_object

    file = read_object(assembled(tmp_path, text), machine_table(load("avx2")))
    assert file.functions == {}
    assert [name for name, *_ in file.symbols] == ["f"]


def test_an_unchanged_object_is_proved(tmp_path):
    assert prove(kernel_object(tmp_path, lambda text: text), BYTES).registers > 300


@pytest.mark.parametrize("row", range(6))
def test_more_alignment_of_the_result_than_is_promised_is_refused(tmp_path, row):
    def edit(text):
        start, end = text.index(f"\n{BYTES}:\n"), text.index(f".size\t{BYTES},")
        stores = re.finditer(r"vmovdqu\t%ymm\d+, [^%]*\(%", text[start:end])
        at = start + list(stores)[2 * row].start()
        return text[:at] + text[at:].replace("vmovdqu", "vmovdqa", 1)

    with pytest.raises(Refuted, match="not aligned to 32 bytes"):
        prove(kernel_object(tmp_path, edit), BYTES)


def test_addresses_have_the_promised_alignment_and_no_more():
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects.placement import layouts_of, random_start
    from bitsynth.objects.prove import _ALIGNED, _GAP

    assert _GAP * 4 % 16 == 0
    for _ in range(20):
        loaded, aligned = random_start(), {**_ALIGNED, "stack": 16, "back": 1}
        layouts = layouts_of(loaded, _ALIGNED)
        for name, size in aligned.items():
            one, other = (layout.start(name) for layout in layouts)
            assert one ^ other == (1 << 47) - size  # Each bit of an address of a process but those of the alignment.
        rows = [[layout.row(k) for k in range(4000)] for layout in layouts]
        assert {a ^ b for a, b in zip(*rows, strict=True)} == {(1 << 47) - 8}
        assert {row % 16 for row in rows[0]} == {0, 8}
        assert min(b - a for a, b in pairwise(rows[0])) >= 1 << 23
        assert len({b - a for a, b in pairwise(rows[0])}) > 100  # Usually 3,990; 375 in the worst of 60,000 draws.
        for layout, base in zip(layouts, (loaded, loaded ^ (1 << 47) - 1), strict=True):
            starts = sorted([base, *map(layout.start, aligned)])
            assert all(1 << 40 <= b - a for a, b in pairwise([0, *starts, 1 << 47]))


def test_an_instruction_of_another_set_is_refused(tmp_path):
    with pytest.raises(Refuted, match=r"vpxord .*of another instruction set"):
        prove(kernel_object(tmp_path, at_entry("vpxord %zmm16, %zmm16, %zmm16")), BYTES)
    run_code(tmp_path, "vpxord %zmm16, %zmm16, %zmm16")
    run_code(tmp_path, "xor %eax, %eax\nvmovq %rax, %xmm16")
    with pytest.raises(NotShown, match="of another instruction set"):  # AVX-512 VL
        run_code(tmp_path, "vpxord %ymm16, %ymm16, %ymm16")
    with pytest.raises(NotShown, match="no declaration"):  # AVX-512 DQ
        run_code(tmp_path, "vxorps %zmm0, %zmm0, %zmm0")
    with pytest.raises(NotShown, match="the kernel does not need vbmi"):
        run_code(tmp_path, "vpermb %zmm0, %zmm0, %zmm0")


def test_dot_products_that_capstone_does_not_know_are_run(tmp_path):
    rng = random.Random(1)
    acc, a, b = ([rng.choice([0, 1, 127, 128, 255, rng.randrange(256)]) for _ in range(32)] for _ in range(3))
    data = "\n".join(f"{name}: .byte {', '.join(map(str, x))}" for name, x in zip("xyz", (acc, a, b), strict=True))
    data = f".section .rodata\n{data}"

    def number(x, k, size):
        return int.from_bytes(bytes(x[k : k + size]), "little", signed=True)

    sums = {
        "vpdpbusd": lambda k: sum(a[k + n] * number(b, k + n, 1) for n in range(4)),
        "vpdpwssd": lambda k: sum(number(a, k + n, 2) * number(b, k + n, 2) for n in (0, 2)),
    }
    for name, products in sums.items():
        want = b"".join((number(acc, k, 4) + products(k) & 0xFFFFFFFF).to_bytes(4, "little") for k in range(0, 32, 4))
        for third in ("%ymm9", "z(%rip)"):
            code = "vmovdqu x(%rip), %ymm8\nvmovdqu y(%rip), %ymm12\nvmovdqu z(%rip), %ymm9\n"
            code += f"{{vex}} {name} {third}, %ymm12, %ymm8\nvmovdqu %ymm8, (%rdi)"
            memory = run_code(tmp_path, code, "avxvnni", data)
            assert bytes(memory.written[OUT + k] for k in range(32)) == want
    known = ".byte 0xc4, 0xe2, 0x6d, 0x50, 0xc1"  # {vex} vpdpbusd %ymm1, %ymm2, %ymm0
    run_code(tmp_path, known, "avxvnni")
    for other in ("0xc4, 0xe2, 0xed, 0x50, 0xc1", "0xc4, 0xe2, 0x6d, 0x51, 0xc1", "0xc4, 0xe3, 0x6d, 0x50, 0xc1"):
        with pytest.raises(NotShown):  # With W 1, with saturation, and of another opcode map.
            run_code(tmp_path, f".byte {other}", "avxvnni")
    with pytest.raises(NotShown, match="no declaration"):
        run_code(tmp_path, known, "avx2")


@pytest.mark.parametrize(
    "code",
    [
        ".byte 0x66\nret", ".byte 0x66\ncall 1f\n1: pop %rax", ".byte 0x66\njmp 1f\n1:",
        "cmp %eax, %eax\n.byte 0x66, 0x0f, 0x84\n.long 0", ".byte 0x66\nvzeroupper", ".byte 0xf2\nvzeroupper",
        ".byte 0x66\nvpxor %ymm0, %ymm0, %ymm0", ".byte 0xf2\nvpxor %ymm0, %ymm0, %ymm0",
        ".byte 0xf3\nvpxord %zmm0, %zmm0, %zmm0",
    ],
)  # fmt: skip
def test_prefixes_that_change_or_forbid_an_instruction_are_refused(tmp_path, code):
    with pytest.raises(NotShown, match=r"a prefix of this kind is not known|no instruction"):
        run_code(tmp_path, code)
    run_code(tmp_path, code.replace(".byte 0x66, 0x0f", ".byte 0x0f") if "long" in code else code.split("\n", 1)[1])


def test_an_address_of_32_bits_is_refused(tmp_path):
    run_code(tmp_path, "lea -1, %rax")
    with pytest.raises(NotShown, match="an address of this kind is not known"):
        run_code(tmp_path, ".byte 0x67\nlea -1, %rax")


def test_an_exchange_of_half_a_register_with_itself_is_refused(tmp_path):
    run_code(tmp_path, "xchg %rdi, %rdi\nxchg %di, %di\nnop")
    with pytest.raises(NotShown, match="xchg edi, edi: no declaration of this instruction"):
        run_code(tmp_path, "xchg %edi, %edi")


def test_a_move_that_is_not_taken_reads_memory(tmp_path):
    with pytest.raises(NotShown, match="belong to no buffer are read"):
        run_code(tmp_path, "xor %eax, %eax\ncmovne 0, %rax")
    run_code(tmp_path, "movq $1, (%rdi)\nxor %eax, %eax\ncmovne (%rdi), %rax")


def test_vzeroupper_leaves_the_upper_registers(tmp_path):
    code = "vmovdqu64 q(%rip), %zmm{0}\nvzeroupper\nvmovdqu64 %zmm{0}, (%rdi)"
    data = ".section .rodata\n.align 64\nq: .fill 64, 1, 7"
    for register, kept in ((0, 16), (15, 16), (16, 64), (31, 64)):
        memory = run_code(tmp_path, code.format(register), data=data)
        assert [memory.written[OUT + k] for k in range(64)] == [7] * kept + [0] * (64 - kept)


@pytest.mark.parametrize(
    ("instruction", "byte"),
    [
        ("vpternlogq $0x1e, %zmm2, %zmm1, %zmm0", 7 ^ (65 | 12)),
        ("vpermt2q %zmm2, %zmm1, %zmm0", 7),
        ("vpermi2q %zmm2, %zmm1, %zmm0", 65),
    ],
)
def test_of_several_operands_that_a_result_may_replace_the_machine_has_the_first(instruction, byte, tmp_path):
    loads = "\n".join(f"vmovdqu64 64 * {k} + q(%rip), %zmm{k}" for k in range(3))
    data = ".section .rodata\n.align 64\nq: .fill 64, 1, 7\n.fill 64, 1, 65\n.fill 64, 1, 12"
    memory = run_code(tmp_path, f"{loads}\n{instruction}\nvmovdqu64 %zmm0, (%rdi)", data=data)
    assert [memory.written[OUT + k] for k in range(64)] == [byte] * 64


def test_stack_that_a_signal_overwrites_has_no_value(tmp_path):
    run_code(tmp_path, "movq $1, -128(%rsp)\nmovq -128(%rsp), %rax")
    with pytest.raises(NotShown, match="8 bytes are written, 1 bytes below what a signal leaves"):
        run_code(tmp_path, "movq $1, -129(%rsp)")
    moved = "sub $64, %rsp\nmovq $1, -128(%rsp)\nadd $64, %rsp\nsub $64, %rsp\nmovq -128(%rsp), %rax\nadd $64, %rsp"
    with pytest.raises(NotShown, match="read before they are written"):
        run_code(tmp_path, moved)
    run_code(tmp_path, moved.replace("-128", "-64"))


@pytest.mark.parametrize(("buffer", "register"), [("a", "rcx"), ("w", "r8"), ("g", "r9")])
def test_an_address_that_is_a_number_in_the_code_is_refused(tmp_path, buffer, register, monkeypatch):
    """It is right in one layout, whose address it contains."""
    from bitsynth.objects import prove as module
    from bitsynth.objects.placement import layouts_of, random_start

    loaded = random_start()
    layouts = layouts_of(loaded, module._ALIGNED)
    monkeypatch.setattr(module, "random_start", lambda: loaded)
    monkeypatch.setattr(module, "layouts_of", lambda *_: layouts)
    for layout in layouts:
        path = kernel_object(tmp_path, at_entry(f"movabsq ${layout.start(buffer)}, %{register}"))
        with pytest.raises(Refuted):
            prove(path, BYTES)


ADDRESSES = {
    "a stack of 32 bytes": "vmovdqa %ymm0, -40(%rsp)",
    "the other stack of 32 bytes": "vmovdqa %ymm0, -56(%rsp)",
    "a branch on the stack's alignment": "leaq 8(%rsp), %rax\nandl $16, %eax\njne 1f\nret\n1:",
    "the other branch on the stack's alignment": "leaq 8(%rsp), %rax\nandl $32, %eax\nje 1f\nret\n1:",
    "constants of 32 bytes": "vmovdqa 16+.LMY(%rip), %ymm1",
    "the other constants of 32 bytes": "vmovdqa .LMY(%rip), %ymm1",
    "constants below 4 GiB": "leal .LMY(%rip), %eax\nvmovdqu (%rax), %ymm0",
    "a branch on the place of constants": "leaq .LMY(%rip), %rax\nshrq $32, %rax\nje 1f\nret\n1:",
    "a branch on the place of the stack": "movq %rsp, %rax\nshrq $46, %rax\nje 1f\nret\n1:",
    "a branch on the place of the caller": "movq (%rsp), %rax\nshrq $46, %rax\nje 1f\nret\n1:",
    "an absolute address of constants": "movabsq $.LMY, %rax\nvmovdqu (%rax), %ymm0",
}
"""Code that asks more of addresses than the C interface promises: it is right in some processes, not in others."""


def asks_more(folder, code):
    """The kernel's object with such code at the entry, and constants of an alignment of 16 bytes."""
    data = '\n.section .rodata.my, "a", @progbits\n.balign 16\n.LMY: .zero 48\n'
    return kernel_object(folder, lambda text: at_entry(code)(text) + data)


@pytest.mark.parametrize("what", ADDRESSES)
def test_code_that_asks_more_of_addresses_is_refused(what, tmp_path):
    path = asks_more(tmp_path, ADDRESSES[what])
    with pytest.raises(Refuted):
        prove(path, BYTES)
    with pytest.raises(NotShown):
        prove_rule(path)


RARE = {
    "a stack of 64 KiB": "leaq 8(%rsp), %rax\ntestw %ax, %ax\njne 1f\nret\n1:",
    "a stack at one address": "movabsq $0x7ffc12345678, %rax\ncmpq %rsp, %rax\njne 1f\nret\n1:",
    "a stack at another place than w": "cmpq %rsp, %r8\njne 1f\nret\n1:",
    "one caller": "movabsq $0x55d012345678, %rax\ncmpq (%rsp), %rax\njne 1f\nret\n1:",
    "an object at one address":
        "leaq .LMY(%rip), %rax\nmovabsq $0x7f0012345678, %rdx\ncmpq %rax, %rdx\njne 1f\nret\n1:",
    "an object far from its caller": "leaq .LMY(%rip), %rax\ncmpq (%rsp), %rax\njb 1f\nret\n1:",
    "a distance between sections": "movl $.LMY - 1f, %eax\n1: cmpl $0x1000, %eax\njne 1f\nret\n1:",
    "a number that is an address": "movq 0x12345678, %rax",
    "what lies behind a frame": "movq %rsp, %rax\nandq $-32, %rsp\nvmovdqu 8(%rsp), %ymm0\nmovq %rax, %rsp",
    "stack before a frame": "movq $1, -16(%rsp)\nmovq %rsp, %rax\nandq $-32, %rsp\nmovq -16(%rax), %rax",
    "the place of a frame": "movq %rsp, %rax\nandq $-32, %rsp\ncmpq %rax, %rsp\nmovq %rax, %rsp\njb 1f\nret\n1:",
    "a frame of 16 bytes": "movq %rsp, %rax\nandq $-16, %rsp\nvmovdqa %ymm0, -32(%rsp)\nmovq %rax, %rsp",
}  # fmt: skip
"""Code that is wrong at few addresses, or at a combination of their bits: runs at chosen ones do not show it all."""


@pytest.mark.parametrize("what", RARE)
def test_code_that_is_wrong_at_few_addresses_is_not_proved_for_all_sizes(what, tmp_path):
    with pytest.raises(NotShown):
        prove_rule(asks_more(tmp_path, RARE[what]))


@pytest.mark.slow
def test_code_that_is_right_at_all_addresses_is_proved_for_all_sizes(tmp_path):
    """A frame that the code aligns, constants of their alignment, and a call."""
    code = (
        "leaq 8(%rsp), %r10\nandq $-32, %rsp\npushq -8(%r10)\npushq %rbp\nmovq %rsp, %rbp\nsubq $112, %rsp\n"
        "vmovdqa %ymm0, -48(%rbp)\nvmovdqa -48(%rbp), %ymm1\nvmovdqa .LMY(%rip), %xmm2\ncall 1f\njmp 2f\n1: ret\n2:\n"
        "movq %rbp, %rsp\npopq %rbp\nleaq -8(%r10), %rsp"
    )
    assert prove_rule(asks_more(tmp_path, code)).paths > 40


def test_constants_of_an_object_have_their_alignment_and_no_more(tmp_path):
    code = "vmovdqa q(%rip), %ymm0"
    run_code(tmp_path, code, data=".section .rodata\n.align 32\nq: .fill 32")
    with pytest.raises(NotShown, match="not aligned to 32 bytes"):
        run_code(tmp_path, code, data=".section .rodata\n.align 4\nq: .fill 32")


def test_code_in_no_function_is_refused(tmp_path):
    with pytest.raises(Refuted, match="ran and is in no function that has a size"):
        prove(kernel_object(tmp_path, lambda text: re.sub(rf"\t\.size\t{BYTES}, .*", "", text)), BYTES)


LIBRARY = """
.globl f
.type f, @function
f: ret
.size f, .-f
.type g, @function
g: ret
.size g, .-g
.section .note.GNU-stack, "", @progbits
.section .rodata
"""


def library_of(folder, more=""):
    """A library with the functions f and g, as bytes, and its file."""
    path = assembled(folder, f"{LIBRARY}{more}\n", "-shared", "-nostdlib", "-Wl,-z,notext,-z,separate-code")
    return bytearray(path.read_bytes()), path


def read_library(path, data):
    from bitsynth.objects.elf import read_object

    path.write_bytes(data)
    return read_object(path, machine_table(load("avx2")))


def headers(path):
    """The sections and segments of a file, and where the header of each section and segment is."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        elf = ELFFile(file)
        sections = {x.name: (x, elf["e_shoff"] + k * elf["e_shentsize"]) for k, x in enumerate(elf.iter_sections())}
        segments = [(x, elf["e_phoff"] + k * elf["e_phentsize"]) for k, x in enumerate(elf.iter_segments())]
        return sections, segments


def test_the_function_is_that_which_a_process_finds(tmp_path):
    data, path = library_of(tmp_path)
    file = read_library(path, data)
    at, size = file.functions["f"]
    table = headers(path)[0][".symtab"][0]
    with path.open("rb") as stream:
        stream.seek(table["sh_offset"])
        symbols = stream.read(table["sh_size"])
    place = table["sh_offset"] + symbols.rindex(at.to_bytes(8, "little") + size.to_bytes(8, "little"))
    other = next(start for name, start, _ in file.symbols if name == "g")
    data[place : place + 8] = other.to_bytes(8, "little")
    assert read_library(path, data).functions["f"] == (at, size)


def test_relocations_without_a_section_are_seen(tmp_path):
    data, path = library_of(tmp_path, "q: .quad 0, f")
    _, header = headers(path)[0][".rela.dyn"]
    data[header + 4 : header + 8] = (1).to_bytes(4, "little")  # A section of bytes without a meaning.
    with pytest.raises(SpecError, match="not of data, are changed when it is loaded"):
        read_library(path, data)


def test_a_section_that_two_segments_load_is_refused(tmp_path):
    data, path = library_of(tmp_path)
    _, segments = headers(path)
    code = next(at for x, at in segments if x["p_type"] == "PT_LOAD" and x["p_flags"] & 1)
    other = next(at for x, at in segments if x["p_type"] == "PT_GNU_STACK")
    data[other : other + 56] = data[code : code + 56]
    with pytest.raises(SpecError, match=r"\.text is not loaded where its header says"):
        read_library(path, data)


def test_sums_do_not_depend_on_their_order():
    sums, rng = Sums(), random.Random(1)
    for _ in range(200):
        addends = [(rng.randrange(50), rng.randrange(1, 16)) for _ in range(rng.randrange(1, 30))]
        total: dict[int, int] = {}
        for key, times in addends:
            total[key] = (total.get(key, 0) + times) % 16
        results = set()
        for _ in range(3):
            rng.shuffle(addends)
            cut = rng.randrange(len(addends) + 1)
            left = right = None
            for key, times in addends[:cut]:
                left = sums.plus(left, sums.single(key, times), 1, 15)
            for key, times in addends[cut:]:
                right = sums.plus(right, sums.single(key, times), 1, 15)
            results.add(sums.plus(left, right, 1, 15))
            assert sums.plus(left, left, -1, 15) is None
        assert len(results) == 1
        node = results.pop()
        assert dict(node.addends() if node else ()) == {key: times for key, times in total.items() if times}


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
        read_object(tmp_path / "x.o", machine_table(load("avx2")))
