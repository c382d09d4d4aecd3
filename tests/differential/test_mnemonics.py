"""Every form compiles to a mnemonic it names: looked for in the disassembly of its conformance test."""

import dataclasses
import re

import pytest
from support.disassembly import GENERAL, VECTOR, mnemonics

from bitsynth.conformance import harness
from bitsynth.isa import load
from bitsynth.toolchain.compiler import compilers

pytestmark = pytest.mark.toolchains

UNKNOWN = {"dpbusd.u8x32", "dpwssd.s16x16"}
"""Forms that capstone cannot decode: it does not know AVX-VNNI."""
LOADED = ("combine.u8x8", "fmov_x.u8x8", "ins_x.u8x16", "extr_x.x32x2")
"""Forms that compilers merge with the loads of their operands: halves go to their place at once."""
MERGED = {
    r"(extracti|half|(low|high)_x).*": "the part alone is loaded",
    r"[us](addw|subw|xtl|mlal|mlsl|mull)2\..*": "the high half alone is loaded",
    r"(ext|zip1)\.u64x2": "both halves are loaded from where they lie",
    r"zip[12]\.u(8x16|16x8|32x4)": "the store interleaves",
}
"""Forms that LLVM merges with the loads and stores around them, and how; GCC compiles each as it stands."""


MASKS = re.compile(r"(kxor|kunpack[dw]|store_mask)\..*")
"""Forms on masks alone, which are no vectors: compilers keep them in registers of any kind."""


def without(isa, forms, compiler):
    """The forms in no function of whose conformance test one of their mnemonics occurs."""
    found = {form.name: False for form in forms}
    for part in harness.compile_libraries(isa, forms, compiler):
        functions = {general: mnemonics(part.library, (VECTOR, GENERAL)[general]) for general in (False, True)}
        for k, (form, _) in enumerate(part.jobs):
            found[form.name] |= not functions[form.out.in_general][f"t_{k}"].isdisjoint(form.mnemonics)
    return {name for name, occurs in found.items() if not occurs}


def merged(form, compiler):
    return (
        bool(MASKS.fullmatch(form))
        or form in LOADED
        or (compiler.family != "gcc" and any(re.fullmatch(pattern, form) for pattern in MERGED))
    )


def usable(name, skip_isa):
    isa = load.load(name)
    if not (usable := compilers(isa)):
        skip_isa(name, f"no C compiler for {name} ({isa.table.arch})")
    return isa, usable


@pytest.mark.parametrize("name", ["avx2", "neon"])
def test_forms_compile_to_their_mnemonics(name, skip_isa):
    """A few of the forms that are also compared with the machine."""
    isa, (compiler, *_) = usable(name, skip_isa)
    forms = [i for i in isa.instrs.values() if i.name.startswith(("and.u8", "add.u16", "add.u32", "tbl.u8x16"))]
    assert without(isa, forms, compiler) == set()
    wrong = [dataclasses.replace(form, mnemonics=("sub", "vpsubb")) for form in forms]
    assert without(isa, wrong, compiler) == {form.name for form in forms}


@pytest.mark.slow
@pytest.mark.parametrize("name", load.names())
def test_every_form_compiles_to_its_mnemonic(name, skip_isa):
    """By every compiler; forms of a set that it extends are looked for there."""
    isa, compilers_of_it = usable(name, skip_isa)
    inherited = load.load(isa.table.extends).instrs if isa.table.extends else {}
    own = [form for form in isa.instrs.values() if form.name not in inherited]
    for compiler in compilers_of_it:
        missing = without(isa, own, compiler)
        assert {form for form in missing - UNKNOWN if not merged(form, compiler)} == set(), compiler.name


@pytest.mark.slow
def test_what_cannot_be_decoded_is_still_unknown(skip_isa):
    """Else the list of such forms is out of date."""
    isa, (compiler, *_) = usable("avxvnni", skip_isa)
    assert without(isa, [isa[name] for name in sorted(UNKNOWN)], compiler) == UNKNOWN
