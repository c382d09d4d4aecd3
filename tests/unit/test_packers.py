"""Machine code of packers, compared with the layout of what they pack; and packers that are wrong."""

import ctypes
import random
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from bitsynth.cli import main
from bitsynth.errors import Refuted
from bitsynth.host import features
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.declared import machine_table
from bitsynth.objects.memory import MemoryPlace
from bitsynth.objects.values import Contents
from bitsynth.store.matmul import MATMUL

pytestmark = pytest.mark.toolchains

BYTES, WORDS = "bs_mm_a4u_w4b_s32_avx2_8x16x4", "bs_mm_a1u_w1b_s32_avx512_12x32x64"
PAIRS = "bs_mm_a1u_w1b_s32_avx2_8x32x12"


def kernel_of(name):
    return MatmulKernel(MATMUL.load_named(name), KernelName.parse(name).spec)


def compiled(folder, name, old="", new="", compiler="gcc"):
    """The object that a compiler makes with -O2 of a kernel's C in which `old` is replaced by `new`."""
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    if features.arch() != "x86_64" or not shutil.which(compiler):
        pytest.skip(f"needs {compiler} for x86_64")
    kernel = kernel_of(name)
    for file, text in kernel.files.items():
        assert file != f"{name}.c" or old in text
        (folder / file).write_text(text.replace(old, new, 1) if file == f"{name}.c" and old else text)
    flags = ["-std=c11", "-O2", *kernel.needs.cc_flags, "-fPIC", "-w", "-c"]
    subprocess.run([compiler, *flags, f"{name}.c", "-o", "kernel.o"], cwd=folder, check=True)
    return folder / "kernel.o"


def proved(path, name):
    from bitsynth.objects.packers import prove_packers

    return {x.function.removeprefix(f"{name}_"): x for x in prove_packers(path, kernel_of(name))}


@pytest.mark.parametrize(
    ("name", "compiler"),
    [
        (BYTES, "gcc"),
        *(pytest.param(*x, marks=pytest.mark.slow) for x in [(WORDS, "gcc"), (BYTES, "clang"), (PAIRS, "gcc")]),
    ],
)
def test_packers_are_proved(tmp_path, name, compiler):
    verdicts = proved(compiled(tmp_path, name, compiler=compiler), name)
    functions = {"act_bytes", "wgt_bytes", "pack_rows", "pack_words", "pack_act", "pack_wgt"}
    assert {*verdicts} == functions | ({"pair_rows"} if name == PAIRS else set())
    assert all(x.is_proved and x.calls > 5 and x.functions for x in verdicts.values()), verdicts
    assert sum(x.numbers for x in verdicts.values()) > 3000


WRONG = {
    "the last code left out": (BYTES, "if (k < left)", "if (k + 1 < left)"),
    "a shift": (BYTES, "<< (q * in->width)", "<< (q * in->width ^ 1)"),
    "a slot": (BYTES, "slots[COLUMNS] = {", "slots[COLUMNS] = {1, "),
    "a term": (BYTES, "sums[v] = -15 * sum;", "sums[v] = -14 * sum;"),
    "a term of a late code": (BYTES, "sum += *codes++;", "sum += *codes++ & 7;"),
    "words of another bit": (WORDS, "words[0] & mask", "words[0] & (mask | mask << 8)"),
    "a gathered bit": (WORDS, "bits[2] | bits[3] << 1", "bits[2] | bits[3] << 2"),
    "bytes of a size": (BYTES, "steps, COLUMN_BYTES), 8)", "steps, COLUMN_BYTES), 4)"),
    "long rows of an operand": (BYTES, "1, k, codes + row * apart, 0,", "1, k, codes + row * (apart - k / 64), 0,"),
    "a size that no object has": (BYTES, "inputs > PTRDIFF_MAX || ", ""),
    "a product that overflows": (BYTES, "&z) ? SIZE_MAX : z;", "&z) ? z : z;"),
    "another half": (PAIRS, "next[i] << 4", "next[i] << 3"),
    "a last partner": (PAIRS, "if (rows > 1)", "if (rows > 2)"),
    "a result": (BYTES, "codes, 1, n, packed);\n    return 0;", "codes, 1, n, packed);\n    return 1;"),
}  # fmt: skip


@pytest.mark.parametrize(
    "change", [pytest.param(x, marks=pytest.mark.slow) if name == PAIRS else x for x, (name, *_) in WRONG.items()]
)
def test_a_wrong_packer_is_refused_with_codes_that_show_it(tmp_path, change):
    name, old, new = WRONG[change]
    with pytest.raises(Refuted, match=rf"{name}_\w+: with .*: it is -?\d+, want \d+"):
        proved(compiled(tmp_path, name, old, new), name)


OUTSIDE = {
    "a read behind the codes": (BYTES, "if (k < left)", "if (k < left + codes[1000])", "read"),
    "a write behind the row": (BYTES, "memset(packed + k, 0, K_STEP);", "memset(packed + k, 0, 64);", "written"),
    "a term of rows that have none": (WORDS, "(void)terms;", "if (count > 0) *terms = 0;", "written"),
    "a sum that begins with nothing": (BYTES, "sums[v] = -15 * sum;", "sums[v] -= 15 * sum;", "read before"),
    "codes that no object has": (WORDS, "product(m, k) > PTRDIFF_MAX || ", "", "read"),
}  # fmt: skip


@pytest.mark.parametrize("change", OUTSIDE)
def test_a_packer_that_leaves_its_buffers_is_refused(tmp_path, change):
    name, old, new, what = OUTSIDE[change]
    with pytest.raises(Refuted, match=rf"{name}_pack_\w+: with .* bytes .* are {what}"):
        proved(compiled(tmp_path, name, old, new), name)


UNKNOWN = {
    "a branch on a code": (
        "sum += *codes++;",
        'if (*codes++ == 3) { __asm__ volatile(""); ++sum; }',
        "depends on data",
    ),
}


@pytest.mark.parametrize("change", UNKNOWN)
def test_a_packer_that_is_not_understood_is_not_proved(tmp_path, change):
    old, new, why = UNKNOWN[change]
    verdicts = proved(compiled(tmp_path, BYTES, old, new), BYTES)
    assert any(why in x.why for x in verdicts.values()), verdicts


def test_a_kernel_that_is_wrong_from_its_third_flush_on_is_refused(tmp_path):
    from bitsynth.objects.prove import prove_object

    path = compiled(tmp_path, BYTES, "start = c;", "start = all_steps - steps_left == 216 ? g : c;")
    with pytest.raises(Refuted, match="steps 217"):
        prove_object(path, kernel_of(BYTES), all_sizes=False)


@pytest.mark.slow
def test_strict_wants_a_kernel_for_every_k(tmp_path, capsys):
    path = compiled(
        tmp_path, BYTES, "size_t steps_here = steps, offset = 0;", "size_t steps_here = steps; uint32_t offset = 0;"
    )
    assert main(["verify", BYTES, "--object", str(path)]) == 0
    assert main(["verify", BYTES, "--object", str(path), "--strict"]) == 1
    assert "is proved for listed sizes alone" in capsys.readouterr().err


@pytest.mark.slow
def test_the_report_has_packers(tmp_path, capsys):
    path = compiled(tmp_path, BYTES)
    assert main(["verify", BYTES, "--object", str(path), "--strict"]) == 0
    output = capsys.readouterr().out
    assert "packers  6 of 6 functions in" in output
    assert "for every K" in output


EXTERNAL = {
    "its bytes": ("leaq 8(%rdi), %rsi\nmovl $8, %edx\ncall memcpy@PLT", ""),
    "places that overlap": ("leaq 4(%rdi), %rsi\nmovl $8, %edx\ncall memcpy@PLT", "overlap"),
    "a register that it may change": (
        "movl $7, %r10d\nleaq 8(%rdi), %rsi\nmovl $8, %edx\ncall memcpy@PLT\nmovb %r10b, (%rbx)", "it is"),
}  # fmt: skip


def proved_function(folder, body, size, number):
    """What is shown of a function f, written in assembler, that is to fill `size` bytes with a number."""
    if features.arch() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs gcc for x86_64")
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects.functions import CallBuffer, DeclaredCall, DeclaredNumber, prove_functions
    from bitsynth.objects.polynomials import constant

    (folder / "f.s").write_text(f".globl f\n.type f, @function\nf:\n{body}\nret\n.size f, .-f\n.data\nx: .byte 7\n")
    subprocess.run(["gcc", "-c", "f.s", "-o", "f.o"], cwd=folder, check=True)
    numbers = tuple(DeclaredNumber("to", k, 1, constant(number)) for k in range(size))
    call = DeclaredCall("f", f"{size} bytes", ("to",), (CallBuffer("to", size, written=True),), numbers)
    (verdict,) = prove_functions(folder / "f.o", load("avx2"), [call], set())
    return verdict


@pytest.mark.parametrize("what", EXTERNAL)
def test_functions_of_the_c_library_do_what_is_declared(tmp_path, what):
    """The function fills 16 bytes by memset with a number, and copies half of them onto the others."""
    body, why = EXTERNAL[what]
    fill = "pushq %rbx\nmovq %rdi, %rbx\nmovl $7, %esi\nmovl $16, %edx\ncall memset@PLT\nmovq %rbx, %rdi"
    with pytest.raises(Refuted, match=why) if why else nullcontext():
        assert proved_function(tmp_path, f"{fill}\n{body}\npopq %rbx", 16, 7).is_proved


def test_a_read_of_data_of_the_object_is_not_understood(tmp_path):
    verdict = proved_function(tmp_path, "movb x(%rip), %al\nmovb %al, (%rdi)", 1, 7)
    assert "1 bytes of the object are read that are no constants" in verdict.why


VECTORS = """
    vpaddb %ymm1, %ymm0, %ymm0; vpaddq %xmm1, %xmm0, %xmm0; vpsubw %ymm1, %ymm0, %ymm0; vpsubd %xmm1, %xmm0, %xmm0
    vpsllw $3, %ymm1, %ymm0; vpslld $9, %xmm1, %xmm0; vpsrlq $33, %ymm1, %ymm0; vpsrlw $7, %xmm1, %xmm0
    vpmuludq %ymm1, %ymm0, %ymm0; vpmuludq %xmm1, %xmm0, %xmm0; vpmaddwd %xmm1, %xmm0, %xmm0
    vpackuswb %xmm1, %xmm0, %xmm0; vpackusdw %xmm1, %xmm0, %xmm0; vpshufb %xmm1, %xmm0, %xmm0
    vpsrldq $5, %xmm1, %xmm0; vextracti128 $1, %ymm1, %xmm0; vpmovzxbw %xmm1, %ymm0; vpmovzxbd %xmm1, %ymm0
    vpmovzxbq %xmm1, %ymm0; vpmovzxwd %xmm1, %ymm0; vpmovzxdq %xmm1, %ymm0; vpmovzxbw %xmm1, %xmm0
    vpor %ymm1, %ymm0, %ymm0; vpor %xmm1, %xmm0, %xmm0; vpxor %xmm1, %xmm0, %xmm0; vpand %ymm1, %ymm0, %ymm0
    vpshufd $0x1b, %xmm1, %xmm0; vpunpckldq %xmm1, %xmm0, %xmm0; vpunpcklqdq %xmm1, %xmm0, %xmm0
    vpblendw $0x5a, %ymm1, %ymm0, %ymm0; vpblendd $5, %xmm1, %xmm0, %xmm0; vinserti128 $1, %xmm1, %ymm0, %ymm0
    vpinsrd $2, %ecx, %xmm1, %xmm0; vpinsrq $1, %rcx, %xmm1, %xmm0; vpextrd $3, %xmm1, (%rsi); vpextrq $1, %xmm1, (%rsi)
    vpunpckhdq %xmm1, %xmm0, %xmm0; vpunpckhqdq %xmm1, %xmm0, %xmm0
    vpsrld $27, %ymm1, %ymm1 then vpsllvd %ymm1, %ymm0, %ymm0; vpsrlq $58, %ymm1, %ymm1 then vpsllvq %ymm1, %ymm0, %ymm0
    vpsrld $26, %xmm1, %xmm1 then vpsllvd %xmm1, %xmm0, %xmm0; vpsrlq $57, %xmm1, %xmm1 then vpsllvq %xmm1, %xmm0, %xmm0
    vpsrld $26, %xmm1, %xmm1 then vpsrlvd %xmm1, %xmm0, %xmm0; vpsrlq $57, %xmm1, %xmm1 then vpsrlvq %xmm1, %xmm0, %xmm0
    vpalignr $8, %xmm1, %xmm0, %xmm0; vpalignr $0, %xmm1, %xmm0, %xmm0; vpalignr $15, %ymm1, %ymm0, %ymm0
    vmovd %ecx, %xmm0; vmovq %rcx, %xmm0; vpbroadcastb %xmm1, %ymm0; vpbroadcastq %xmm1, %ymm0; vmovdqu %ymm1, (%rsi)
"""
"""Instructions on vectors of `isa_specs/x86_64.toml` that processors with AVX2 have."""


def test_declared_vector_instructions_do_what_the_machine_does(tmp_path):
    if features.arch() != "x86_64" or not shutil.which("gcc") or " avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("needs gcc for x86_64, and AVX2")
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects.elf import read_object
    from bitsynth.objects.processor import CodeProcessor
    from bitsynth.objects.tables import TableMemory

    given = [x.strip().replace(" then ", "\n") for x in VECTORS.replace("\n", ";").split(";") if x.strip()]
    before = "vmovdqu (%rdi), %ymm0\nvmovdqu 32(%rdi), %ymm1\nmovq 64(%rdi), %rcx"
    after = "vmovdqu %ymm0, 32(%rsi)\nret"
    functions = [
        f".globl f{k}\n.type f{k}, @function\nf{k}:\n{before}\n{text}\n{after}\n.size f{k}, .-f{k}\n"
        for k, text in enumerate(given)
    ]
    (tmp_path / "f.s").write_text("\n".join(functions))
    subprocess.run(["gcc", "-shared", "f.s", "-o", "f.so"], cwd=tmp_path, check=True)
    machine, isa, rng = ctypes.CDLL(str(tmp_path / "f.so")), load("avx2"), random.Random(1)
    file = read_object(tmp_path / "f.so", machine_table(isa))
    for k, text in enumerate(given):
        for _ in range(4):
            data = rng.randbytes(72)
            out = ctypes.create_string_buffer(64)
            getattr(machine, f"f{k}")(data, out)
            values = Contents()
            memory = TableMemory(values)
            memory.arrays = [
                MemoryPlace("data", 1 << 40, 72, data), MemoryPlace("out", 1 << 41, 64, writable=True)
            ]  # fmt: skip
            CodeProcessor(file, isa, values, memory).call(
                file.function(f"f{k}"), [1 << 40, 1 << 41], stack=1 << 42, back=1
            )
            assert [memory.written.get((1 << 41) + n, 0) for n in range(64)] == list(out.raw), text


def test_an_address_of_bits_that_no_code_has_is_one_place():
    """Bit 4 of a code of 4 bits is 0, so what is read at 64 plus that bit is the first byte of the table."""
    pytest.importorskip("elftools")
    from bitsynth.objects.data_operations import compute_of_data
    from bitsynth.objects.declared import GeneralOperation
    from bitsynth.objects.tables import TableMemory

    values = Contents()
    memory = TableMemory(values, [MemoryPlace("table", 64, 32, bytes(range(32)))], code_bits={"codes": 4})
    code = values.content((*values.memory("codes", 0, 1).data, *[0] * 7))
    for what, number in ((GeneralOperation("and"), 1 << 4), (GeneralOperation("add"), 64)):
        code = compute_of_data(values, what, code, values.number(number, 8), 64, None)
    assert memory.load(code, 1).as_int == 0
