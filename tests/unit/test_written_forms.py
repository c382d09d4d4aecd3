"""C contains only instructions that the proof covers: declared, tested on the machine, and obligations."""

import dataclasses
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from support.case_selection import quick
from support.solved_kernels import on_record

from bitsynth import paths
from bitsynth.conformance.check import check_isa
from bitsynth.emit import flushes
from bitsynth.emit.depthwise import DepthwiseSource
from bitsynth.emit.elementwise import source
from bitsynth.emit.kernel import CSource
from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.isa import load, tested
from bitsynth.kernel.program import ORDERS
from bitsynth.kernel.straight_line import sign_shift
from bitsynth.proof import multiples
from bitsynth.proof.discharge import discharge
from bitsynth.proof.obligations import Quotient
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.store.accept import accept
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.store.matmul import MATMUL

A4W4 = "avx2/bs_mm_a4u_w4b_s32_avx2_4x8x2.json"
INTRINSIC = re.compile(r"\b(?:_mm\d*_\w+|_(?:k|cvt)\w+|v[a-z][a-z0-9]*_(?:\w+_)*[usp]?\d+(?:x\d)?)(?=\()")
"""A call of an intrinsic of x86 or Arm."""
CAST = "reinterpret"
MOVED = {"memcpy", "WORD"}
"""Loads and stores in plain C, which no form declares: of 8-byte words and of masks."""


def shipped(pattern):
    return sorted(paths.shipped_kernels().glob(pattern))


def edited(tmp_path, monkeypatch, name, file, old, new):
    """The instruction sets that ship, with one text of a file of theirs changed, and the record of its tests."""
    shutil.copytree(paths.isa_specs(), tmp_path / "isa")
    path = tmp_path / "isa" / name / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    monkeypatch.setattr(paths, "isa_specs", lambda: tmp_path / "isa")
    tested._digests.cache_clear()


@pytest.fixture(autouse=True)
def anew():
    """Accept files again before and after a test that changes instruction sets."""
    MATMUL.forget()
    yield
    tested._digests.cache_clear()
    MATMUL.forget()


@pytest.fixture
def a4w4():
    (path,) = shipped("avx2/bs_mm_a4u_w4b_*.json")
    return path


def test_a_changed_shift_of_signs_is_refused(a4w4, tmp_path, monkeypatch):
    edited(tmp_path, monkeypatch, "avx2", "compare.toml", "_mm256_srai_epi", "_mm256_srli_epi")
    with pytest.raises(SpecError, match=r"sra\.s32x8 is not differential-tested"):
        MATMUL.load(a4w4)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('c = "vcombine_u8({a}, vcreate_u8({b}))"', 'c = "vcombine_u8(vcreate_u8({b}), {a})"'),
        ("vcombine_u8({a}, {a})), 1))", "vcombine_u8({a}, {a})), 0))"),
    ],
)
def test_halves_that_are_swapped_are_refused(tmp_path, monkeypatch, old, new):
    edited(tmp_path, monkeypatch, "neon", "general.toml", old, new)
    base = MATMUL.load(shipped("neon/bs_mm_a2u_w1b_*.json")[0])
    with pytest.raises(SpecError, match=r"ins_x\.u8x16 is not differential-tested"):
        base.form(msgspec.structs.replace(base.entry.kernel, order="a53"))


@pytest.mark.toolchains
@pytest.mark.parametrize("clang", [False, True])
def test_both_texts_of_a_form_are_tried(skip_isa, clang):
    """The text that only Clang sees in emitted C, too, whatever compiler runs the test."""
    isa = load.load("neon")
    form = isa["ins_x.u8x16"]
    right = form.clang if clang else form.text
    wrong = (
        right.replace("{b}), 1", "{b}), 0").replace("), 1))", "), 0))")
        if clang
        else "vcombine_u8(vcreate_u8({b}), {a})"
    )
    assert wrong != right
    changed = dataclasses.replace(form, clang=wrong) if clang else dataclasses.replace(form, text=wrong)
    for each in (form, changed):
        try:
            report = check_isa(load.Isa(isa.table, {**isa.instrs, form.name: each}), forms=[form.name])
        except ToolError as error:
            skip_isa("neon", str(error))
        assert report.passed == (each is form)


def test_an_instruction_that_is_not_listed_is_not_written(a4w4, monkeypatch):
    proved = MATMUL.load(a4w4).proved
    spec = MatmulSpec("avx2", MatmulOperand(4, Encoding.UNSIGNED), MatmulOperand(4, Encoding.SIGNED))
    monkeypatch.setattr(flushes, "sign_shift", lambda isa: isa["sra.s16x16"])
    with pytest.raises(SpecError, match=r"sra\.s16x16 is written as C, and is none of the forms that the proof covers"):
        CSource(proved, spec)


@pytest.mark.parametrize("isa", load.names())
def test_a_shift_that_does_not_copy_the_sign_is_refuted(isa):
    isa = load.load(isa)
    right = multiples.shift_obligation(isa, 1)
    discharge(isa, [right], Budget())
    (name,) = (n for n in ("srl.u32x8", "srl.u32x16", "ushr.u32x4", "shr.u32x4") if n in isa.instrs)
    assert sign_shift(isa).name != name
    with pytest.raises(Refuted, match="is another number"):
        discharge(isa, [Quotient(name, 1, (), isa[name].meaning)], Budget())


def test_a_certificate_lists_the_instructions_of_all_encodings(a4w4, monkeypatch):
    """Obligations of doubled flushes and the shift: without one of them the file is refused, and so is its C."""
    entry = MATMUL.read(a4w4)
    instructions = entry.certificate.instructions
    monkeypatch.setattr("bitsynth.proof.matmul.encoding_obligations", lambda kernel, passes: set())
    fewer = on_record(entry.kernel)
    more = sorted(set(instructions) - set(fewer.statements))
    assert any("is a quotient" in statement for statement in more)
    assert len(more) > 1
    for act, wgt in ((Encoding.BIPOLAR, Encoding.BIPOLAR), (Encoding.UNSIGNED, Encoding.SIGNED)):
        spec = MatmulSpec("avx2", MatmulOperand(4, act), MatmulOperand(4, wgt))
        with pytest.raises(SpecError, match="the kernel's proof does not list what this encoding wants"):
            CSource(fewer, spec)
    monkeypatch.undo()
    for statement in more:
        listed = tuple(x for x in instructions if x != statement)
        certificate = msgspec.structs.replace(entry.certificate, instructions=listed)
        with pytest.raises(SpecError, match="the instruction lemmas differ"):
            accept(msgspec.structs.replace(entry, certificate=certificate))


def intrinsics(text):
    return {name for name in INTRINSIC.findall(text) if CAST not in name}


def declared(isa, forms):
    """The intrinsics of the forms, by form."""
    return {form: set().union(*map(intrinsics, isa[form].texts)) for form in forms}


def specs(kernel):
    """Every encoding that the kernel has."""
    for act in Encoding:
        for wgt in Encoding:
            if kernel.act_bits in act.widths and kernel.w_bits in wgt.widths:
                yield MatmulSpec(kernel.isa, MatmulOperand(kernel.act_bits, act), MatmulOperand(kernel.w_bits, wgt))


def check_texts(isa, forms, texts, *, some=False):
    """The intrinsics of the texts are the intrinsics of the forms; `some` forms need not be written."""
    of_forms = declared(isa, forms)
    written = intrinsics("".join(texts))
    every = set().union(*of_forms.values())
    assert written <= every if some else written == every


SHIPPED = shipped("*/**/bs_mm_*.json")
FAST = [
    p
    for p in SHIPPED
    if re.search(r"a(2u_w1|4u_w4|3u_w3)b", p.name) and len(p.relative_to(paths.shipped_kernels()).parts) == 2
][::3]
# A sample is enough: emission itself refuses a form that the proof does not list, for every kernel.
KERNELS = sorted({*FAST, *SHIPPED[::24]})
DEPTHWISE_KERNELS = shipped("*/**/bs_dw_*.json")[::6]
ELEMENTS = shipped("*/elementwise/*.json")[::10]


def relative(path: Path) -> str:
    return str(path.relative_to(paths.shipped_kernels()))


@pytest.mark.parametrize("path", quick(FAST, of=KERNELS), ids=relative)
def test_c_of_kernels_has_the_instructions_that_the_proof_names(path):
    """In all encodings together all of them, and no others; so in the order of in-order processors."""
    stored = MATMUL.load(path)
    isa = load.load(stored.entry.kernel.isa)
    for order in (stored.entry.kernel.order, *isa.table.in_order):
        try:
            proved = stored.form(msgspec.structs.replace(stored.entry.kernel, order=order)).proved
        except SpecError:
            assert order not in ORDERS
            continue
        texts = [CSource(proved, spec).source for spec in specs(proved.artifact) if spec.core == proved.artifact.core]
        # A last row's own program, and the paper's halves of registers, are not in the C of every order.
        some = proved.artifact.scalar_pass is not None or path.parent.name.startswith("paper")
        check_texts(isa, proved.artifact.forms, texts, some=some)


@pytest.mark.parametrize("path", quick(DEPTHWISE_KERNELS[:1], of=DEPTHWISE_KERNELS), ids=relative)
def test_c_of_depthwise_kernels_has_the_instructions_that_the_proof_names(path):
    proved = DEPTHWISE.load(path)
    texts = [DepthwiseSource(proved, order).source for order in proved.artifact.orders]
    check_texts(load.load(proved.artifact.isa), proved.artifact.forms, texts)


@pytest.mark.parametrize("path", quick(ELEMENTS[::6], of=ELEMENTS), ids=relative)
def test_c_of_elementwise_programs_has_the_instructions_that_the_proof_names(path):
    program = ELEMENTWISE.read(path).program
    check_texts(load.load(program.isa), program.written_forms, [source([program])])
