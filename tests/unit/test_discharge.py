"""Instruction lemmas: what they state, that Z3 proves the shipped ones, that wrong ones fall."""

from dataclasses import replace
from typing import Any

import pytest
from support.case_selection import quick
from support.solved_kernels import REPRESENTATIVE, kernel, name

from bitsynth import paths
from bitsynth.errors import Refuted, Undecided
from bitsynth.isa import load
from bitsynth.isa.domains.forms import BitField, Concat, LinearForm, TableEntry
from bitsynth.proof import discharge, matmul
from bitsynth.proof.obligations import Lane, Obligation, shape
from bitsynth.solver.budget import Budget
from bitsynth.store.matmul import MATMUL

QUICK = [
    ("avx2", "popcount", 2, 1),
    ("avx2", "lookup", 2, 2),
    ("avx2", "multiply", 2, 2),
    ("neon", "popcount", 2, 2),
    ("neon", "lookup", 2, 1),
    ("armv7_neon", "lookup", 1, 2),
    ("neon_dotprod", "dot", 3, 1),
]
SHIPPED = sorted(paths.shipped_kernels().glob("*/*.json"))


def obligations_of(*config):
    return matmul.examine(kernel(*config))[1]


def bits(n, mask=0xFF, width=8):
    return (Lane("bits", 0, mask, width),) * n


def sums(n, low, high, width=8):
    return (Lane("sum", low, high, width),) * n


def consts(values, width=8):
    return tuple(Lane("const", v, v, width) for v in values)


def entries(n, size, most=3):
    """Every lane the entry of its number, of one table of partial sums."""
    parts = sums((size - 1).bit_length(), 0, most)
    return tuple(Lane("entry", lane % size, 0, 8, parts) for lane in range(n))


def two(n, low, high):
    """16-bit lanes of two bytes each."""
    return (Lane("pieces", 0, 0, 16, sums(2, low, high)),) * n


@pytest.mark.parametrize("config", quick(QUICK[1::2], of=QUICK), ids=name)
def test_lemmas_of_every_method_hold(config):
    obligations = obligations_of(*config)
    assert discharge.discharge(load.load(config[0]), obligations, Budget()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("config", REPRESENTATIVE, ids=name)
def test_lemmas_of_all_representatives_hold(config):
    assert discharge.discharge(load.load(config[0]), obligations_of(*config), Budget()) > 0


@pytest.mark.parametrize("path", quick(SHIPPED[::5], of=SHIPPED), ids=lambda p: p.stem)
def test_shipped_kernels_list_their_lemmas(path):
    entry = MATMUL.read(path)
    obligations = matmul.examine(entry.kernel)[1]
    assert tuple(sorted(u.statement for u in obligations)) == entry.certificate.instructions


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED[::9], ids=lambda p: p.stem)
def test_lemmas_of_shipped_kernels_hold(path):
    obligations = matmul.examine(MATMUL.read(path).kernel)[1]
    assert discharge.discharge(load.load(path.parent.name), obligations, Budget()) > 0


def test_statements_name_form_operands_and_meaning():
    obligation = Obligation("cnt.u8x16", 0, (bits(16),), "popcount(a[i])")
    assert obligation.statement.startswith("instruction: cnt.u8x16 #0 on bits in 0xff [")
    assert obligation.statement != replace(obligation, meaning="popcount(a[i]) + 1").statement
    assert obligation.statement != replace(obligation, operands=(bits(16, 0x0F),)).statement
    assert obligation.statement != replace(obligation, imm=1).statement
    mixed = Obligation("add.u8x16", 0, (sums(16, 0, 8), (*sums(15, 0, 8), *consts([3]))), "a[i] + b[i]")
    assert "on sums in [0, 8]; 2 kinds of operand lanes" in mixed.statement
    table = Obligation("tbl.u8x16", 0, (entries(16, 16), bits(16, 15)), "lookup")
    assert "on 16 kinds of entry lanes; bits in 0xf" in table.statement
    assert table.statement != replace(table, operands=(entries(16, 16, 4), bits(16, 15))).statement
    assert "on narrower lanes [" in Obligation("ushr.u16x8", 8, (two(8, 0, 255),), "a[i] >> n").statement


def test_shapes_of_lanes():
    assert shape(5, 8, 1) == Lane("const", 5, 5, 8)
    assert shape(BitField(0b10, 0, 0, 0x0F, 0x10), 8, 2) == Lane("bits", 0x10, 0x1F, 8)
    assert shape(LinearForm(3, {}, 3, 9), 8, 1) == Lane("sum", 3, 9, 8)
    assert shape(LinearForm(0, {("x", 0, 0): {1: 1}}, 0, 300), 8, 1) == Lane("sum", 0, 255, 8)
    assert shape(LinearForm(0, {("x", 0, 0): {1: 1}}, -1, 254), 8, 1) == Lane("sum", 0, 255, 8)
    byte = LinearForm(0, {("x", 0, 0): {1: 1}}, 0, 9)
    assert shape(Concat(((byte, 8), (0, 8))), 16, 1).pieces == (Lane("sum", 0, 9, 8), Lane("const", 0, 0, 8))
    assert shape(TableEntry((byte, byte), 2), 8, 1) == Lane("entry", 2, 0, 8, (Lane("sum", 0, 9, 8),) * 2)


RIGHT = [
    ("avx2", Obligation("xor.u8x32", 0, (bits(32), bits(32)), "")),
    ("avx2", Obligation("shuffle_epi8.u8x32", 0, (consts([k.bit_count() for k in range(16)] * 2), bits(32, 0x0F)), "")),
    ("avx2", Obligation("sad_epu8.u8x32", 0, (sums(32, 0, 255), consts([0] * 32)), "")),
    ("avx2", Obligation("madd.s16x16", 0, (sums(16, 0, 32767, 16), consts([1] * 16, 16)), "")),
    ("neon", Obligation("cnt.u8x16", 0, (bits(16),), "")),
    ("neon", Obligation("uadalp.u8x16", 0, (sums(8, 0, 65535, 16), sums(16, 0, 255)), "")),
    ("neon", Obligation("umlsl.u16x8", 0, (sums(4, 0, 2**32 - 1, 32), sums(8, 0, 65535, 16), consts([3] * 8, 16)), "")),
    ("neon", Obligation("saddlp.s8x16", 0, (sums(16, -8, 8),), "")),
    ("neon", Obligation("tbl.u8x16", 0, (entries(16, 16), bits(16, 15)), "")),
    ("avx2", Obligation("shuffle_epi8.u8x32", 0, (entries(32, 16), bits(32, 15)), "")),
    ("avx2", Obligation("maddubs.u8x32", 0, (sums(32, 0, 15), sums(32, 0, 15)), "")),
    ("avx2", Obligation("srl.u16x16", 8, (two(16, 0, 200),), "")),
    ("neon", Obligation("mul.u8x16", 0, (sums(16, 0, 3), sums(16, 0, 3)), "")),
    ("neon", Obligation("mla.u8x16", 0, (sums(16, 0, 255), sums(16, 0, 3), sums(16, 0, 3)), "")),
    ("neon", Obligation("shl.u16x8", 3, (sums(8, 0, 100, 16),), "")),
]


@pytest.mark.parametrize(("isa", "obligation"), RIGHT, ids=lambda x: getattr(x, "op", x))
def test_right_obligations_are_proved(isa, obligation):
    assert discharge.discharge(load.load(isa), [obligation], Budget()) >= 1


WRONG = [
    ("avx2", Obligation("sad_epu8.u8x32", 0, (sums(32, -1, 200), consts([0] * 32)), "")),
    ("avx2", Obligation("madd.s16x16", 0, (sums(16, 0, 32768, 16), consts([1] * 16, 16)), "")),
    ("avx2", Obligation("shuffle_epi8.u8x32", 0, (consts([k.bit_count() for k in range(16)] * 2), bits(32)), "")),
    ("avx2", Obligation("shuffle_epi8.u8x32", 0, (consts([*range(15), 14] * 2), bits(32, 0x0F)), "")),
    ("avx2", Obligation("maddubs.u8x32", 0, (sums(32, 0, 255), consts([127] * 32)), "")),
    ("neon", Obligation("tbl.u8x16", 0, (entries(16, 16), bits(16, 31)), "")),
    ("neon", Obligation("tbl.u8x16", 0, (entries(16, 8), bits(16, 15)), "")),
    ("neon", Obligation("tbl.u8x16", 0, (entries(16, 16), sums(16, 0, 15)), "")),
    (
        "neon",
        Obligation("tbl.u8x16", 0, ((*entries(16, 16)[:15], Lane("entry", 15, 1, 8, sums(4, 0, 3))), bits(16, 15)), ""),
    ),
    ("neon", Obligation("tbl.u8x16", 0, ((*entries(16, 16)[1:], entries(1, 16)[0]), bits(16, 15)), "")),
    ("avx2", Obligation("maddubs.u8x32", 0, (sums(32, 0, 255), sums(32, 0, 127)), "")),
    ("avx2", Obligation("srl.u16x16", 4, (two(16, 0, 200),), "")),
    ("neon", Obligation("uaddlp.u8x16", 0, (sums(16, -1, 100),), "")),
    ("neon", Obligation("cnt.u8x16", 0, (sums(16, 0, 8),), "")),
    ("neon", Obligation("ushr.u16x8", 1, (sums(8, 0, 8, 16),), "")),
    ("neon", Obligation("and.u8x16", 0, (sums(16, 0, 8), sums(16, 0, 8)), "")),
]


@pytest.mark.parametrize(("isa", "obligation"), WRONG, ids=lambda x: getattr(x, "op", x))
def test_wrong_obligations_are_refuted(isa, obligation):
    """Widening what may have wrapped, saturation, an index beyond the table, gates on sums."""
    with pytest.raises(Refuted, match=obligation.op):
        discharge.discharge(load.load(isa), [obligation], Budget())


class Lying:
    """An instruction set in which one form does something else than its linear meaning says."""

    def __init__(self, isa, op, other):
        self.isa, self.op, self.other = isa, op, other

    def __getitem__(self, op):
        right = self.isa[op]
        wrong = self.isa[self.other]

        class Both:
            operands, out = right.operands, right.out

            def __call__(self, domain, args, imm=0):
                return (wrong if type(domain).__name__ == "SymbolicDomain" else right)(domain, args, imm)

        return Both() if op == self.op else right


def lying(isa, op, other) -> Any:
    return Lying(isa, op, other)


@pytest.mark.parametrize(
    ("op", "other", "operands"),
    [
        ("xor.u8x32", "or.u8x32", (bits(32), bits(32))),
        ("andnot.u8x32", "and.u8x32", (bits(32), bits(32))),
        ("add.u8x32", "sub.u8x32", (sums(32, 0, 8), sums(32, 0, 8))),
        ("unpacklo.u8x32", "unpackhi.u8x32", (sums(32, 0, 8), sums(32, 0, 8))),
        ("shuffle_epi8.u8x32", "add.u8x32", (entries(32, 16), bits(32, 15))),
        ("shuffle_epi8.u8x32", "unpackhi.u8x32", (entries(32, 16), bits(32, 15))),
    ],
)
def test_a_machine_that_does_something_else_is_caught(op, other, operands):
    """The linear domain believes `op`, the machine does `other`: a model of the difference is shown."""
    isa = load.load("avx2")
    with pytest.raises(Refuted, match=r"lane \d is not what the linear domain says"):
        discharge.discharge(lying(isa, op, other), [Obligation(op, 0, operands, "")], Budget())


@pytest.mark.parametrize("config", QUICK[1:2], ids=name)
def test_a_machine_with_another_lookup_is_caught(config):
    """A whole kernel's lemmas, on a machine whose table lookup gives the bytes of an addition."""
    isa = lying(load.load(config[0]), "shuffle_epi8.u8x32", "add.u8x32")
    with pytest.raises(Refuted, match="instruction: shuffle_epi8"):
        discharge.discharge(isa, obligations_of(*config), Budget())


@pytest.mark.parametrize("config", QUICK[:2], ids=name)
def test_a_tiny_budget_is_undecided(config):
    with pytest.raises(Undecided, match="--rlimit"):
        discharge.discharge(load.load(config[0]), obligations_of(*config), Budget(1))


def test_obligations_are_proved_in_an_order_of_their_own():
    """The same questions in the same order, whatever the order of the set."""
    isa = load.load("avx2")
    obligations = sorted(obligations_of("avx2", "popcount", 2, 1), key=lambda u: u.statement)
    asked: list[str] = []
    for given in (obligations, obligations[::-1]):
        budget = Budget(progress=lambda message, done=0, total=None: asked.append(message))
        discharge.discharge(isa, given, budget)
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
