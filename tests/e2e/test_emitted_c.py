"""The C text itself: clean under every compiler, the same on every run, without undefined behaviour."""

import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest
from support.case_selection import quick
from support.kernel_checks import ISAS, WIDTHS, encodings, kernel, of_method
from support.programs import constant
from support.solved_kernels import REPRESENTATIVE, entry, name, on_record

from bitsynth import matmul, toolchain
from bitsynth.emit.kernel import CSource
from bitsynth.errors import ToolError
from bitsynth.isa import load
from bitsynth.proof import checker
from bitsynth.run.runner import runner_for
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec

pytestmark = pytest.mark.toolchains

STRICT = ("-DBITSYNTH_NO_MAIN", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes")
COMPILERS = [(isa, c) for isa in ISAS for c in toolchain.compilers(load.load(isa))]
CASES = [*WIDTHS, *((2, 2, *pair) for pair in encodings(2, 2)[::2])]
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g")
DIRECTORY = Path(__file__).parent


@cache
def compiled(isa, compiler, case):
    return toolchain.compile_for(load.load(isa), kernel(isa, *case).files, flags=STRICT, compiler=compiler)


def selftest(isa, compiler, case):
    runner = runner_for(load.load(isa), compiled(isa, compiler, case))
    return runner.call(f"{kernel(isa, *case).name}_selftest", bits=32)


def test_a_compiler_was_found():
    assert {isa for isa, _ in COMPILERS} == set(ISAS)


@pytest.mark.parametrize("case", [(2, 2, "ternary", "signed")], ids=str)
@pytest.mark.parametrize(("isa", "compiler"), COMPILERS, ids=lambda x: getattr(x, "name", x))
def test_clean_and_right_under_every_compiler(isa, compiler, case):
    assert selftest(isa, compiler, case) == 0


@pytest.mark.parametrize("config", quick(REPRESENTATIVE[1::4], of=REPRESENTATIVE), ids=name)
def test_every_method_is_clean_under_a_compiler(config, skip_isa):
    """And right, where the machine runs or emulates the instruction set."""
    isa, k = load.load(config[0]), of_method(*config)
    found = toolchain.compilers(isa)
    if not found:
        skip_isa(config[0], f"no compiler for {config[0]}")
    library = toolchain.compile_for(isa, k.files, flags=STRICT, compiler=found[0], needs=k.c.needs)
    try:
        runner = runner_for(isa, library, needs=k.c.needs)
    except ToolError as why:
        skip_isa(config[0], str(why))
    assert runner.call(f"{k.name}_selftest", bits=32) == 0


@pytest.mark.parametrize("order", quick([], of=["rows", "a53"]))
def test_steps_of_128_are_clean(order, skip_isa):
    found = matmul.get_kernel("neon", 1, 1, method="popcount", channels=64, k_step=128)
    isa, k = load.load("neon"), found.with_order(order)
    try:
        library = toolchain.compile_for(isa, k.files, flags=STRICT, needs=k.c.needs)
        runner = runner_for(isa, library, needs=k.c.needs)
    except ToolError as why:
        skip_isa("neon", str(why))
    assert runner.call(f"{k.name}_selftest", bits=32) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("isa", "case"), [(isa, case) for k, isa in enumerate(ISAS) for case in CASES[k :: len(ISAS)]], ids=str
)
def test_all_kernels_are_clean_and_right(isa, case):
    """Each with one set and under one compiler, all of them in turn."""
    found = [c for name, c in COMPILERS if name == isa]
    assert selftest(isa, found[CASES.index(case) // len(ISAS) % len(found)], case) == 0


def test_the_selftest_sees_a_wrong_kernel():
    """With one entry of the terms where a tile starts changed, the exit code names the pattern."""
    k = of_method("avx2", "popcount", 2, 1)
    terms = k.entry.kernel.column_terms
    right, wrong = (f"code_terms[] = {{{', '.join(map(str, x))}}};" for x in (terms, (*terms[:-1], terms[-1] + 1)))
    files = {file: text.replace(right, wrong) for file, text in k.files.items()}
    assert files != k.files
    library = toolchain.compile_for(load.load("avx2"), files, flags=("-DBITSYNTH_NO_MAIN",))
    assert runner_for(load.load("avx2"), library).call(f"{k.name}_selftest", bits=32) > 0


def test_row_terms_are_added_from_aligned_zeros():
    """clang has `vld1.32 {d0[], d1[]}, [r0:32]` load an int32_t, which faults where bytes need no alignment."""
    source = matmul.get_kernel("armv7_neon", 4, 4, cpu="a72").source
    assert "row_start = zero;" in source
    assert "static const int32_t zero[4]" in source


def test_constants_of_64_bits_are_numbers_of_their_type(monkeypatch):
    """18446744073709551615 alone is too large for every signed type, which compilers warn of."""
    kernel_of = entry("avx2", "lookup", 2, 2).kernel
    wide = constant("k8", "u64x4", (2**64 - 1, 2**63, 2**63 - 1, 0))
    changed = msgspec.structs.replace(kernel_of, constants=(*kernel_of.constants, wide))
    spec = MatmulSpec("avx2", MatmulOperand(2, Encoding.UNSIGNED), MatmulOperand(2, Encoding.BIPOLAR))
    monkeypatch.setattr(checker, "check_used", lambda *_: None)
    source = " ".join(CSource(on_record(changed), spec).source.split())
    assert "UINT64_C(18446744073709551615), UINT64_C(9223372036854775808), 9223372036854775807, 0" in source


RENDER = """
import hashlib, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
from support.kernel_checks import ISAS, WIDTHS, encodings, kernel
for isa in ISAS:
    for case in [*WIDTHS, *((2, 2, *pair) for pair in encodings(2, 2))][:: int(sys.argv[2])]:
        for name, text in kernel(isa, *case).files.items():
            print(name, hashlib.sha256(text.encode()).hexdigest())
"""


@pytest.mark.parametrize("step", quick([], of=[15, 1]))
def test_the_same_bytes_on_every_run(step):
    def rendered(seed):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", RENDER, str(DIRECTORY), str(step)]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    first = rendered("1")
    assert first == rendered("2")
    k = kernel("neon", 3, 3)
    assert step > 1 or hashlib.sha256(k.files[f"{k.name}.c"].encode()).hexdigest() in first


def test_text_is_plain():
    """Plain ASCII, no tabs, no blanks at line ends, nothing of this machine."""
    for isa in ISAS:
        for text in kernel(isa, 2, 2, "ternary", "signed").files.values():
            assert text.isascii()
            assert "\t" not in text
            assert not any(line != line.rstrip() for line in text.split("\n"))
            assert str(Path.home()) not in text
            assert text.endswith("\n")


DRIVER = """\
#include "NAME.h"
#include <stdio.h>
#include <stdlib.h>

static unsigned state = 1;
static uint8_t code(unsigned last)
{
    state = state * 1664525u + 1013904223u;
    return (uint8_t)(state / 65536u % (last + 1));
}

static int one(size_t m, size_t k, size_t n)
{
    uint8_t *a = malloc(m * k), *w = malloc(k * n);
    uint8_t *act = malloc(NAME_act_bytes(m, k)), *wgt = malloc(NAME_wgt_bytes(k, n));
    int32_t *c = malloc(m * n * sizeof *c);
    int bad = 0;
    for (size_t i = 0; i < m * k; ++i) a[i] = code(ACT_LAST);
    for (size_t i = 0; i < k * n; ++i) w[i] = code(WGT_LAST);
    NAME_pack_act(m, k, a, act);
    NAME_pack_wgt(k, n, w, wgt);
    bad |= NAME_matmul(m, k, n, act, wgt, c);
    for (size_t i = 0; i < m; ++i)
        for (size_t j = 0; j < n; ++j) {
            int32_t want = 0;
            for (size_t l = 0; l < k; ++l)
                want += (ACT_SCALE * a[i * k + l] + ACT_OFFSET) * (WGT_SCALE * w[l * n + j] + WGT_OFFSET);
            bad |= want != c[i * n + j];
        }
    free(a); free(w); free(act); free(wgt); free(c);
    return bad;
}

int main(void)
{
    for (size_t k = 0; k < 2 * NAME_k_step + 3; ++k)
        if (one(NAME_rows + 1, k, NAME_columns + 1)) { printf("K %zu\\n", k); return 1; }
    for (size_t m = 1; m < 2 * NAME_rows + 2; m += 1 + NAME_rows / 8)
        for (size_t n = 1; n < 2 * NAME_columns + 2; n += 1 + NAME_columns / 8)
            if (one(m, 37, n)) { printf("M %zu N %zu\\n", m, n); return 1; }
    return one(2, 5000, 3);
}
"""


def driver(k):
    act, wgt = k.spec.act, k.spec.wgt
    facts = {
        "ACT_LAST": act.codes[-1],
        "WGT_LAST": wgt.codes[-1],
        "ACT_SCALE": act.scale,
        "ACT_OFFSET": f"({act.offset})",
        "WGT_SCALE": wgt.scale,
        "WGT_OFFSET": f"({wgt.offset})",
        "NAME": k.name,
    }
    text = DRIVER
    for field, value in facts.items():
        text = text.replace(field, str(value))
    return {f"{k.name}.h": k.header, f"{k.name}.c": k.source, "driver.c": text}


SANITIZED = [
    ("avx2", "popcount", 2, 1),
    ("avx2", "lookup", 2, 2, "signed", "ternary"),
    ("avx2", "lookup", 3, 2, "bipolar", "signed"),
    ("avx2", "lookup", 1, 1),
    ("avx2", "multiply", 2, 2),
    ("avx2", "multiply", 4, 3),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", SANITIZED, ids=str)
def test_no_undefined_behaviour(case):
    """Exact buffers, every tail and tile edge, under AddressSanitizer and UBSan."""
    isa = load.load("avx2")
    native = [c for c in toolchain.compilers(isa) if c.family in ("gcc", "clang")]
    if not native:
        pytest.skip("neither gcc nor clang is installed for this machine")
    try:
        toolchain.compile_for(
            isa, {"empty.c": "int main(void) { return 0; }\n"}, flags=SANITIZE, shared=False, compiler=native[0]
        )
    except ToolError:
        pytest.skip(f"{native[0].name} has no sanitizer runtime here")
    program = toolchain.compile_for(isa, driver(of_method(*case)), flags=SANITIZE, shared=False, compiler=native[0])
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("isa", ISAS)
def test_header_is_cplusplus_too(isa):
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    header = kernel(isa, 2, 2).header
    command = ["g++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-"]
    done = subprocess.run(command, input=header, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
