"""No mutant of what packs operands survives: of the decision, of the C templates, of the numpy packers."""

from dataclasses import replace

import jinja2
import msgspec
import numpy as np
import pytest
from support.case_selection import quick
from support.solved_kernels import REPRESENTATIVE, kernel, name, on_record

from bitsynth import toolchain
from bitsynth.emit import packing, render
from bitsynth.emit.kernel import CSource
from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.kernel import packing as pack
from bitsynth.kernel.packing import number
from bitsynth.layers import Dense, constants
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.run.runner import runner_for
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec

WORDS, APART, LONG = ("avx2", "popcount", 2, 1), ("avx2", "popcount", 2, 2), ("neon", "popcount", 2, 2)
TABLES, BYTES, STEPS, SIX = (
    ("avx2", "lookup", 2, 2),
    ("avx2", "multiply", 2, 2),
    ("avx2", "lookup", 6, 1),
    ("avx2", "multiply", 6, 1),
)
SEVERAL = "neon", "pairs", 2, 1
FORMS = {APART: {"bit_axis": "outer"}, SEVERAL: {"order": "a53"}}
"""What is other than in the kernel as it was solved."""
TEMPLATES = {p.name: p.read_text(encoding="utf-8") for p in render.FOLDER.glob("*.j2")}
MUTANTS = {
    "sums of 6-bit codes in bytes": (SIX, "kernel.row_bits > 5", "kernel.row_bits > 6"),
    "sums without the upper codes": (SIX, "(high & even) + (high >> 8 & even)", "(high & even) + (high & even)"),
    "sums of the low half twice": (BYTES, "low + high;", "low + low;"),
    "sums without the last codes": (BYTES, "for (; k > 0; --k)", "for (; k > 1; --k)"),
    "sums of rows that lie elsewhere": (BYTES, "from = codes + row * apart;", "from = codes + row * k;"),
    "codes of a step in another order": (WORDS, "'order[position]'", "'position'"),
    "another bit of the codes": (WORDS, "gathered(codes, {{ j }})", "gathered(codes, {{ j // 2 }})"),
    "words in another order": (WORDS, "bits[1] << 1", "bits[1] << 2"),
    "the second half beside the first": (LONG, "& low) << 4;", "& low) << 5;"),
    "planes one over the other": (
        WORDS,
        "(kernel.slot_bytes * loop.index0)) if loop.index0 }}",
        "kernel.slot_bytes) }}",
    ),
    "planes apart one over the other": (APART, "' + %d * apart' % loop.index0 if outer", "'' if outer"),
    "a rest without its last code": (
        WORDS,
        "memcpy(rest, codes + at, k - at);",
        "memcpy(rest, codes + at, k - at - 1);",
    ),
    "tables of codes behind the row": (TABLES, "stage &= UINT64_MAX >> (64 - 8 * left);", ""),
    "tables of a rest that is short": (TABLES, "memcpy(&stage, codes, left);", "memcpy(&stage, codes, 1);"),
    "bytes that are not cleared": (BYTES, "memset(packed + k, 0, K_STEP);", ""),
    "codes behind the row": (STEPS, "pack_step(left_of(k, step), codes + step", "pack_step(K_STEP, codes + step"),
    "the same codes in every step": (STEPS, "codes + step * K_STEP, 1,", "codes, 1,"),
    "planes of a byte that overlap": (BYTES, "<< (q * in->width)", "<< q"),
    "a byte of the first code alone": (WORDS, "b * in->apart + q{{", "b * in->apart{{"),
    "columns in the order of slots": (
        BYTES,
        "const size_t column = tile + slots[slot];",
        "const size_t column = tile + slot;",
    ),
    "terms of the first rows": (BYTES, "narrow(ROWS, row_sums_at + row,", "narrow(ROWS, row_sums_at,"),
    "several tables and fewer codes": (SEVERAL, "codes += {{ many }};", "codes += {{ taken }};"),
    "several tables over one another": (SEVERAL, "to += {{ build.at_once }} * TABLES", "to += TABLES"),
    "a partner in the low halves": (SEVERAL, "own[i] | next[i] << 4;", "own[i] | next[i];"),
    "every second row without partner": (
        SEVERAL,
        "pair_next{{ width }}(count, other, one,",
        "pair_next{{ width }}(count, other, other,",
    ),
    "four tables that are half as many": (
        SEVERAL,
        "at += {{ 4 * register_bytes }})",
        "at += {{ 8 * register_bytes }})",
    ),
}
"""What each is, the kernel that shows it, and a text of one template with what takes its place."""


def selftest(config):
    """What the self-test of the kernel says, as the templates now render it."""
    isa, _, act_bits, w_bits = config
    found = msgspec.structs.replace(kernel(*config), **FORMS.get(config, {}))
    c = CSource(
        on_record(found),
        MatmulSpec(isa, MatmulOperand(act_bits, Encoding.SIGNED), MatmulOperand(w_bits, Encoding.BIPOLAR)),
    )
    library = toolchain.compile_for(
        load(isa), c.files, needs=c.needs, flags=("-DBITSYNTH_NO_MAIN", "-O1", "-Wno-unused")
    )
    return runner_for(load(isa), library, needs=c.needs).call(f"{c.name}_selftest", bits=32)


@pytest.mark.parametrize("config", quick([SIX], of=[WORDS, APART, LONG, TABLES, BYTES, STEPS, SIX, SEVERAL]), ids=name)
def test_the_templates_as_they_are(config):
    assert selftest(config) == 0


QUICK = ["sums of 6-bit codes in bytes", "several tables over one another"]


@pytest.mark.parametrize("mutant", quick(QUICK, of=MUTANTS))
def test_no_mutant_of_the_templates_survives(mutant, monkeypatch):
    config, old, new = MUTANTS[mutant]
    assert sum(text.count(old) for text in TEMPLATES.values()) == 1
    changed = render.environment.__wrapped__()
    changed.loader = jinja2.DictLoader({name: text.replace(old, new) for name, text in TEMPLATES.items()})
    monkeypatch.setattr(render, "environment", lambda: changed)
    assert selftest(config) > 0


def changed_decisions(found):
    """Packings of the kernel that would give wrong products."""
    result = packing.packing(found)
    if result.rows != "steps":
        for where in ((0, 1), (0, len(result.order) - 1)):
            order = list(result.order)
            order[where[0]], order[where[1]] = order[where[1]], order[where[0]]
            yield replace(result, order=tuple(order))
        yield replace(result, order=(*result.order[1:], result.order[0]))
    if result.rows == "words":
        yield replace(result, rows="bytes")
        for i, word in enumerate(result.words):
            for other in (word[1:], (*word, ()), ((0,),) if word != ((0,),) else ((),)):
                yield replace(result, words=(*result.words[:i], other, *result.words[i + 1 :]))
        if len(set(result.words)) > 1:
            yield replace(result, words=result.words[::-1])
    elif result.rows != "bytes":
        yield replace(result, rows="bytes")


@pytest.mark.parametrize("config", quick(REPRESENTATIVE[::4], of=REPRESENTATIVE), ids=name)
def test_no_mutant_of_the_decision_survives(config):
    """Each is refused before it is rendered."""
    found = kernel(*config)
    for mutant in changed_decisions(found):
        with pytest.raises(Refuted, match="not as was proved"):
            packing.check(found, mutant)


def bits_that_overlap(planes, codes, bits, size, _code_bytes):
    """`packing.pack`, with a place of one bit for each code in a byte."""
    out = np.zeros((*codes.shape[:-1], size), np.uint8)
    numbers = np.array([number(planes.tables, code) for code in range(1 << bits)], np.uint8)
    for b in range(size):
        for q, position in enumerate(planes.positions(b)):
            out[..., b] |= numbers[codes[..., position]] << np.uint8(q)
    return out


def slots_in_order(kernel, codes, real=pack.tiles):
    """`pack.tiles`, with columns in the slots of their numbers."""
    return real(msgspec.structs.replace(kernel, slots=tuple(range(kernel.columns))), codes)


def codes_in_order(kernel):
    """Another order for weights than for rows."""
    return replace(packing.packing(kernel), order=tuple(range(kernel.k_step)))


PACKERS = {
    "bits that overlap": ("multiply", pack, "pack", bits_that_overlap),
    "slots in order": ("multiply", constants, "tiles", slots_in_order),
    "codes in order": ("popcount", constants, "packing", codes_in_order),
}


@pytest.mark.parametrize("mutant", quick(["codes in order"], of=PACKERS))
def test_no_mutant_of_the_numpy_packers_survives(mutant, monkeypatch):
    """The self-test of a layer sees it."""
    method, module, function, wrong = PACKERS[mutant]
    monkeypatch.setattr(module, function, wrong)
    schedule = LayerSchedule(isa="avx2", method=method, channels=64, gather="im2col")
    layer = Dense(np.random.default_rng(1).choice([-3, -1, 1, 3], (9, 70)), 2, 2, schedule=schedule)
    files = {n: t for n, t in layer.files("layer").items() if n != "main.c" and n.endswith((".c", ".h"))}
    flags = ("-pthread", "-DBITSYNTH_NO_MAIN", "-O1")
    library = toolchain.compile_for(load("avx2"), files, needs=layer.kernel.needs, flags=flags, cached=files)
    assert runner_for(load("avx2"), library).call("layer_selftest", bits=32) == 1
