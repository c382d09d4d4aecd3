"""Self-tests of emitted C: every one-line mutant that changes a result is caught, and the others are counted."""

import random
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.c_mutants import Mutant, mutants, sample

from bitsynth.host import features
from bitsynth.isa.load import load
from bitsynth.kernel.program import period
from bitsynth.layers import Conv2d, Thresholds
from bitsynth.matmul import get_kernel

pytestmark = [pytest.mark.slow, pytest.mark.toolchains]

FLAGS = ("-std=c11", "-w", "-O0", "-mavx2", "-DBITSYNTH_NO_MAIN")
WRONG, TIMES = 1, 20
"""The exit status where two results differ, and the most seconds that a mutant may run."""
KERNELS = [((2, 1), {}, 36), ((4, 4), {"act_encoding": "bipolar"}, 8), ((1, 1), {"method": "popcount"}, 12)]
"""Widths of kernels, more arguments, and how many mutants of each are tried."""
SEED, LAYER_MUTANTS = 5, 24
CALLERS = {"runs.c", "layer_selftest.c"}
RUNTIME = {"bs_layer", "bs_tiles", "bs_pack", "bs_finish", "bs_values", "bs_codes", "bs_encode", "bs_joined"}
"""Files of the runtime whose code layers run."""

COMPARE = """\
#include "NAME.h"
#include "PLAIN.h"
#include <stdlib.h>
#include <string.h>

static uint32_t state;
static uint32_t any(uint32_t count) { state = state * 1664525u + 1013904223u; return (state >> 8) % count; }

enum { ROWS = NAME_rows, COLUMNS = NAME_columns, STEP = NAME_k_step, BYTES = NAME_row_bytes };

/* Codes of kind 0 are the last, of 1 the last in rows and the first in columns, of 2 one of these,
   of 3 any; -1 is any kind. */
static int kind = -1;

static void fill(uint8_t *codes, size_t count, uint32_t last, int columns)
{
    const int of = kind < 0 ? (int)any(4) : kind;
    for (size_t i = 0; i < count; ++i)
        codes[i] = (uint8_t)(of == 0 ? last : of == 1 ? (columns ? 0 : last) : of == 2 ? any(2) * last : any(last + 1));
}

#define SAME(one, other, bytes) do { if (memcmp(one, other, bytes)) exit(1); } while (0)

static void products(size_t m, size_t k, size_t n)
{
    const size_t act = PLAIN_act_bytes(m, k), wgt = PLAIN_wgt_bytes(k, n);
    if (act != NAME_act_bytes(m, k) || wgt != NAME_wgt_bytes(k, n)) exit(1);
    uint8_t *a = malloc(m * k + 1), *w = malloc(k * n + 1), *x[4];
    int32_t *c = calloc(m * n, 4), *d = calloc(m * n, 4);
    for (int i = 0; i < 4; ++i) x[i] = calloc(1, (i < 2 ? act : wgt) + 64);
    fill(a, m * k, ACT_LAST, 0);
    fill(w, k * n, WGT_LAST, 1);
    PLAIN_pack_act(m, k, a, x[0]);
    NAME_pack_act(m, k, a, x[1]);
    PLAIN_pack_wgt(k, n, w, x[2]);
    NAME_pack_wgt(k, n, w, x[3]);
    if (PLAIN_matmul(m, k, n, x[0], x[2], c) != NAME_matmul(m, k, n, x[1], x[3], d)) exit(1);
    SAME(c, d, m * n * 4);
    if (PLAIN_matmul(m, k, n, x[1], x[3], d)) exit(1);
    SAME(c, d, m * n * 4);
    for (int i = 0; i < 64; ++i) if (x[1][act + i] || x[3][wgt + i]) exit(1);
    for (int i = 0; i < 4; ++i) free(x[i]);
    free(a); free(w); free(c); free(d);
}

static void rows(size_t count, size_t k, size_t readable)
{
    const size_t size = (k + STEP - 1) / STEP * BYTES;
    uint8_t *codes = malloc(count * (k + 64));
    uint8_t *one = calloc(1, count * size + 256), *other = calloc(1, count * size + 256);
    int32_t t[64] = {0}, s[64] = {0}, p[64] = {0}, q[64] = {0};
    fill(codes, count * (k + 64), ACT_LAST, 0);
    PLAIN_pack_rows(count, k, codes, k + 64, (count - 1) * (k + 64) + k + readable, one, size, t, s);
    NAME_pack_rows(count, k, codes, k + 64, (count - 1) * (k + 64) + k + readable, other, size, p, q);
    SAME(one, other, count * size);
    SAME(t, p, sizeof t);
    SAME(s, q, sizeof s);
#if WORDS
    const size_t apart = (k + 63) / 64 * WORDS;
    uint64_t *words = malloc(count * apart * 8 + 8);
    for (size_t i = 0; i < count * apart * 8; ++i) ((uint8_t *)words)[i] = (uint8_t)any(256);
    if (k > 0) {
        PLAIN_pack_words(count, k, words, apart, one, size, t, s);
        NAME_pack_words(count, k, words, apart, other, size, p, q);
        SAME(one, other, count * size);
        SAME(t, p, sizeof t);
        SAME(s, q, sizeof s);
    }
    free(words);
#endif
    free(codes); free(one); free(other);
}

static void tiles(size_t tiles, size_t segments, size_t steps)
{
    const size_t k = steps * STEP, all = segments * k;
    uint8_t *a = malloc(segments * ROWS * k + 1), *w = malloc(tiles * COLUMNS * all + 1);
    uint8_t *act = malloc(PLAIN_act_bytes(segments * ROWS, k)), *wgt = malloc(PLAIN_wgt_bytes(all, tiles * COLUMNS));
    const uint8_t **from = malloc((segments * ROWS + 1) * sizeof *from);
    int32_t *c = calloc(ROWS * (tiles * COLUMNS + 8), 4), *d = calloc(ROWS * (tiles * COLUMNS + 8), 4);
    if (k * segments > NAME_k_max) return;
    int32_t g[3 * COLUMNS], h[ROWS];
    fill(a, segments * ROWS * k, ACT_LAST, 0);
    fill(w, tiles * COLUMNS * all, WGT_LAST, 1);
    PLAIN_pack_act(segments * ROWS, k, a, act);
    PLAIN_pack_wgt(all, tiles * COLUMNS, w, wgt);
    for (size_t i = 0; i < segments * ROWS; ++i) from[i] = act + i * steps * BYTES;
    for (size_t i = 0; i < 3 * COLUMNS; ++i) g[i] = (int32_t)any(1 << 20) - (1 << 19);
    for (size_t i = 0; i < ROWS; ++i) h[i] = (int32_t)any(1 << 20) - (1 << 19);
    PLAIN(tiles, segments, steps, from, wgt, g, h, c, tiles * COLUMNS + 8);
    NAME(tiles, segments, steps, from, wgt, g, h, d, tiles * COLUMNS + 8);
    SAME(c, d, ROWS * (tiles * COLUMNS + 8) * 4);
    free(a); free(w); free(act); free(wgt); free(from); free(c); free(d);
}

static void sizes(void)
{
    size_t chosen[70] = {0, 1, 2, 3, 7, 64};
    for (size_t i = 0; i < 64; ++i) chosen[6 + i] = SIZE_MAX >> i;
    for (size_t i = 0; i < 70; ++i)
        for (size_t j = 0; j < 70; ++j) {
            const size_t x = chosen[i], y = chosen[j];
            const int act = PLAIN_act_bytes(x, y) == SIZE_MAX, wgt = PLAIN_wgt_bytes(x, y) == SIZE_MAX;
            if (PLAIN_act_bytes(x, y) != NAME_act_bytes(x, y) || PLAIN_wgt_bytes(x, y) != NAME_wgt_bytes(x, y)) exit(1);
            if (act && (NAME_pack_act(x, y, 0, 0) != -1 || NAME_matmul(x, y, 1, 0, 0, 0) != -1)) exit(1);
            if (wgt && (NAME_pack_wgt(x, y, 0, 0) != -1 || NAME_matmul(1, x, y, 0, 0, 0) != -1)) exit(1);
        }
    if (NAME_matmul(1, (size_t)NAME_k_max + 1, 1, 0, 0, 0) != -1) exit(1);
}

int main(void)
{
    const size_t behind = 2 * PERIOD + PERIOD / 2 + 3;
    sizes();
    for (size_t i = 0; i < 48; ++i) {
        state = (uint32_t)i;
        kind = -1;
        products(1 + any(3 * ROWS), any(300), 1 + any(2 * COLUMNS));
        rows(1 + any(5), any(300), any(2) * 64);
        tiles(any(3), any(4), any(40));
    }
    for (size_t i = 0; i < 3; ++i) {
        products(2 + any(ROWS), 1200 + any(1500), 3);
        rows(1 + any(5), 1200 + any(3000), any(2) * 64);
    }
    if (SECOND)
        for (kind = 0; kind < 4; ++kind)
            tiles(1, 1 + any(3), behind);
    return 0;
}
"""

RUNS = """\
enum { OUT = 20, IN = 24, LAST = 3 };
#include "layer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static uint32_t state;
static uint32_t any(uint32_t count) { state = state * 1664525u + 1013904223u; return (state >> 8) % count; }
static void run(struct bs_shape shape, size_t threads, uint32_t kind, size_t cut)
{
    const struct bs_shape out = layer_output(shape);
    const size_t codes = shape.batch * shape.height * shape.width * IN, bytes = layer_arena_bytes(shape, threads);
    const size_t results = out.batch * out.height * out.width * OUT * 4 + 64;
    uint8_t *input = malloc(codes + 1), *output = malloc(results), *arena = malloc(bytes + 64);
    struct bs_pool *pool = threads > 1 ? bs_pool_create(threads) : NULL;
    memset(output, 0xa5, results);
    memset(arena + bytes, 0xa5, 64);
    for (size_t i = 0; i < codes; ++i)
        input[i] = (uint8_t)(kind == 0 ? any(LAST + 1) : kind == 1 ? LAST : kind == 2 ? 0 : any(2) * LAST);
    const int status = layer_run(shape, input, output, arena, bytes - cut, pool);
    uint64_t hash = 1;
    for (size_t i = 0; i < results; ++i) hash = (hash ^ output[i]) * 0x100000001b3u;
    for (size_t i = 0; i < 64; ++i) hash = (hash ^ arena[bytes + i]) * 0x100000001b3u;
    printf("%zu %zu %zu: %zu %zu %d %016llx\\n",
           shape.batch, shape.height, shape.width,
           out.height, out.width, status, (unsigned long long)hash);
    bs_pool_destroy(pool); free(input); free(output); free(arena);
}
int main(void)
{
    static const struct bs_shape shapes[] = {{2, 9, 7}, {1, 3, 4}, {3, 1, 1}, {1, 12, 5}, {2, 2, 9}, {1, 17, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (uint32_t kind = 0; kind < 4; ++kind) {
            state = (uint32_t)i;
            run(shapes[i], 1, kind, 0);
            run(shapes[i], 3, kind, 0);
            run(shapes[i], 2, kind, 0);
            if (kind == 0) run(shapes[i], 2, kind, 1);
        }
    return 0;
}
"""
"""Runs of a layer for shapes, codes, threads and an arena that is too small: status, and a digest of results."""


def driver(k, plain):
    """The comparison of a kernel, whose rows are activations, with the same one whose names begin with `plain`."""
    assert not k.entry.kernel.swapped
    periods = [period(chain) for chain in k.entry.kernel.chains]
    facts = {
        "ACT_LAST": k.spec.act.codes[-1],
        "WGT_LAST": k.spec.wgt.codes[-1],
        "PERIOD": max(periods),
        "SECOND": int(max(periods) < 1 << 14),
        "WORDS": k.entry.kernel.row_bits * f"{k.name}_pack_words" in k.header,
        "PLAIN": plain,
        "NAME": k.name,
    }
    text = COMPARE
    for field, value in facts.items():
        text = re.sub(rf"\b{field}(?=\b|_)", str(int(value) if isinstance(value, bool) else value), text)
    return text


@dataclass(frozen=True)
class Trial:
    """A folder with C that is compiled but for the `file` that is mutated, and the objects of both programs.

    `tests` are linked to the self-test, `compares` to a program that compares results with those of the text as it is.
    """

    folder: Path
    file: str
    tests: tuple[str, ...]
    compares: tuple[str, ...]

    def caught(self, mutant: Mutant) -> bool | None:
        """Whether the self-test fails for a mutant, None if it does not compile."""
        text = (self.folder / f"{self.file}.c").read_text()
        (self.folder / "mutant.c").write_text(mutant.of(text))
        if not compiled(self.folder, "mutant"):
            return None
        return status(self.folder, "mutant.o", *self.tests) != 0

    @property
    def differs(self) -> bool:
        """Whether the mutant that was compiled last has another result somewhere."""
        return status(self.folder, "mutant.o", *self.compares) != 0


def compiled(folder: Path, name: str, *flags: str) -> bool:
    """Compile a file of the folder to an object; whether that succeeds."""
    command = ["gcc", *FLAGS, *flags, "-c", f"{name}.c", "-o", f"{name}.o"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def status(folder: Path, *objects: str) -> int:
    """The exit status of the program of these objects; WRONG if it hangs."""
    subprocess.run(["gcc", *objects, "-o", "program", "-lm", "-lpthread"], cwd=folder, check=True)
    try:
        run = subprocess.run(["./program"], cwd=folder, capture_output=True, timeout=TIMES, check=False)
    except subprocess.TimeoutExpired:
        return WRONG
    return run.returncode


def judged(trial, chosen):
    """How many mutants are caught, how many equal the original, and the mutants that do neither."""
    counts, missed = Counter[str](), list[str]()
    for mutant in chosen:
        caught = trial.caught(mutant)
        kind = "other" if caught is None else "caught" if caught else "missed" if trial.differs else "equal"
        counts[kind] += 1
        if kind == "missed":
            missed.append(str(mutant))
    return counts, missed


def kernel_trial(folder, k):
    """The C of a kernel, and of the same kernel by another name."""
    for name, text in k.files.items():
        (folder / name).write_text(text)
        renamed = text.replace(k.name, "plain").replace(k.name.upper(), "PLAIN")
        (folder / name.replace(k.name, "plain")).write_text(renamed)
    (folder / "compare.c").write_text(driver(k, "plain"))
    (folder / "main.c").write_text(f"int {k.name}_selftest(void); int main(void) {{ return {k.name}_selftest(); }}")
    assert compiled(folder, "compare", "-O2")
    assert compiled(folder, "plain", "-O2")
    parts = ("main", f"{k.name}_selftest")
    assert all(compiled(folder, part) for part in parts)
    return Trial(folder, k.name, tuple(f"{part}.o" for part in parts), ("compare.o", "plain.o"))


def output(folder: Path, *objects: str) -> bytes:
    """What the program of these objects prints; nothing if it fails or hangs."""
    return b"" if status(folder, *objects) else subprocess.run(["./program"], cwd=folder, stdout=-1, check=True).stdout


@pytest.mark.parametrize(("widths", "more", "count"), KERNELS, ids=str)
def test_no_wrong_mutant_of_a_kernel_passes_its_self_test(widths, more, count, tmp_path, skip_isa):
    """Those that pass give the same packed rows, terms and products for random and extreme operands of many sizes."""
    if shutil.which("gcc") is None or not features.matches(load("avx2").table):
        skip_isa("avx2", "no gcc, or no AVX2")
    k = get_kernel("avx2", *widths, **more)
    trial = kernel_trial(tmp_path, k)
    assert trial.caught(Mutant(0, "", "")) is False
    assert not trial.differs
    counts, missed = judged(trial, sample(mutants(k.files[f"{k.name}.c"]), count, SEED))
    print(k.name, dict(counts))
    assert missed == []
    assert counts["caught"] > counts["equal"]


def layer_c():
    """The C of a small layer with an epilogue."""
    rng = np.random.default_rng(1)
    levels = Thresholds(np.sort(rng.integers(-40, 40, (20, 3)), axis=1))
    layer = Conv2d(rng.choice([-1, 1], (20, 24, 3, 3)), 2, 1, padding=1, stride=2, epilogue=levels, isa="avx2")
    return {name: text for name, text in layer.files("layer").items() if name != "main.c"}


def executed(folder, name):
    """The numbers, from 0, of the lines of a file that a run has executed, as gcov counts them."""
    subprocess.run(["gcov", f"{name}.c"], cwd=folder, capture_output=True, check=True)
    counted = re.findall(r"^ *[0-9]+\*?: *([0-9]+):", (folder / f"{name}.c.gcov").read_text(), re.MULTILINE)
    return {int(line) - 1 for line in counted}


def test_no_wrong_mutant_of_the_runtime_passes_the_self_test_of_a_layer(tmp_path, skip_isa):
    """Mutants of lines that the layer executes; those that pass write the same, but for races of threads."""
    if shutil.which("gcc") is None or shutil.which("gcov") is None or not features.matches(load("avx2").table):
        skip_isa("avx2", "no gcc with gcov, or no AVX2")
    files = {**layer_c(), "runs.c": RUNS}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "main.c").write_text("int layer_selftest(void); int main(void) { return layer_selftest(); }")
    parts = [name.removesuffix(".c") for name in files if name.endswith(".c") and name not in CALLERS]
    runtime = [name for name in parts if name in RUNTIME]
    for name in [*parts, "runs", "main", "layer_selftest"]:
        assert compiled(tmp_path, name, *(["--coverage"] if name in runtime else []))
    objects = [f"{name}.o" for name in parts]
    status(tmp_path, *objects, "runs.o", "--coverage")
    lines = {name: executed(tmp_path, name) for name in runtime}
    for name in runtime:
        assert compiled(tmp_path, name)
    wanted = output(tmp_path, *objects, "runs.o")
    found = [(name, m) for name in runtime for m in mutants(files[f"{name}.c"]) if m.line in lines[name]]
    counts, missed = Counter[str](), list[str]()
    for name, mutant in random.Random(SEED).sample(found, LAYER_MUTANTS):
        (tmp_path / "mutant.c").write_text(mutant.of(files[f"{name}.c"]))
        if not compiled(tmp_path, "mutant"):
            continue
        others = ["mutant.o", *(part for part in objects if part != f"{name}.o")]
        caught = status(tmp_path, *others, "layer_selftest.o", "main.o") != 0
        # Where threads share memory by mistake, one run in a hundred is wrong: no test of a few runs finds that.
        equal = caught or any(output(tmp_path, *others, "runs.o") == wanted for _ in range(3))
        kind = "caught" if caught else "equal" if equal else "missed"
        counts[kind] += 1
        if kind == "missed":
            missed.append(f"{name} {mutant}")
    print(dict(counts))
    assert missed == []
    assert counts["caught"] > 10
