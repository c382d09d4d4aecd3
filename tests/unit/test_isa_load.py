"""A wrong instruction-set folder gives one SpecError: which file, what is wanted, what came."""

import re
import shutil

import pytest

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.isa import load
from bitsynth.isa.types import VecType

AND = """
[instr.and]
doc = "Bitwise and."
in = { a = "T", b = "T" }
out = "T"
lane = "a[i] & b[i]"
c = "vand{T.q}_{T}({a}, {b})"
mnemonic = "and"
forms = { T = ["u8x8", "u8x16"] }
cost = { a53 = { lat = 1, per_cycle = 1.0 }, a72 = { lat = 3, per_cycle = 1.5 }, a76 = { lat = 2, per_cycle = 2.0 } }
source = "insn_bench"
"""
SHIFT = """
[instr.shl]
doc = "Shift left by n bits."
in = { a = "T" }
out = "T"
imm = { n = [0, "last"] }
lane = "a[i] << n"
c = "vshl{T.q}_n_{T}({a}, {n})"
mnemonic = ["shl", "shl | add"]
forms = { T = ["u8x8", "u8x16"], last = [7, 7] }
cost = { a53 = { lat = 2, per_cycle = 1.0 }, a72 = { lat = 3, per_cycle = 1.0 }, a76 = { lat = 2, per_cycle = 1.0 } }
source = "insn_bench"
"""


@pytest.fixture
def folder(tmp_path):
    """A copy of NEON's isa.toml and no instructions."""
    home = tmp_path / "neon"
    home.mkdir()
    shutil.copy(paths.isa_specs() / "neon" / "isa.toml", home)
    return home


def read(folder, text):
    (folder / "some.toml").write_text(text, encoding="utf-8")
    return load.load_folder(folder)


def test_what_is_right_is_read(folder):
    isa = read(folder, AND + SHIFT)
    assert list(isa.instrs) == ["and.u8x8", "and.u8x16", "shl.u8x8", "shl.u8x16"]
    assert isa["and.u8x16"].render(["x", "y"]) == "vandq_u8(x, y)"
    assert isa["shl.u8x8"].render(["x"], 3) == "vshl_n_u8(x, 3)"
    assert [i.mnemonics for i in isa.instrs.values()] == [("and",), ("and",), ("shl",), ("shl", "add")]
    assert (isa["shl.u8x8"].imms, isa["and.u8x8"].imms) == (range(8), range(1))
    assert isa["and.u8x8"].cost["a53"].per_cycle == 2 * isa["and.u8x16"].cost["a53"].per_cycle
    assert isa["and.u8x8"].cost["a72"] == isa["and.u8x16"].cost["a72"]


BROKEN = {
    ('doc = "Bitwise and."\n', ""): "missing required field `doc`",
    ('lane = "a[i] & b[i]"\n', ""): "missing required field `lane`",
    ('source = "insn_bench"\n', ""): "missing required field `source`",
    ("cost = {", "costs = {"): "unknown field `costs`",
    ('doc = "Bitwise and."', "doc = 3"): "Expected `str`, got `int`",
    ("lat = 1,", 'lat = "1",'): "Expected `float`, got `str`",
    ("lat = 1,", "lat = -1,"): "lat >= 0 and per_cycle > 0",
    ("lat = 1,", "lat = nan,"): "lat >= 0 and per_cycle > 0",
    ("per_cycle = 1.5", "per_cycle = inf"): "lat >= 0 and per_cycle > 0",
    ("per_cycle = 1.5", "per_cycle = 0"): "lat >= 0 and per_cycle > 0",
    ("a72 = { lat = 3, per_cycle = 1.5 }, ", ""): "no cost for a72",
    ("a72 = {", "m1 = {"): "no cost for a72",
    ("cost = {", "cost = { m1 = { lat = 1, per_cycle = 1.0 },"): "cost for unknown cpu m1",
    ('"insn_bench"', '"a guess"'): "unknown cost source 'a guess'; known: compare_costs, insn_bench, ",
    ("[instr.and]", "[instr.and"): "Expected ']'",
    ("[instr.and]", "[instrs.and]"): "unknown field `instrs`",
    ("[instr.and]", "[instr.and]\n[instr.and]"): "Cannot declare",
    ('["u8x8", "u8x16"]', '["u8x8", "u8x8"]'): "and.u8x8 is declared twice",
    ('["u8x8", "u8x16"]', "[]"): "want one or more forms",
    ('{ T = ["u8x8", "u8x16"] }', "{}"): "want one or more forms",
    ('"u8x16"] }', '"u8x16"], n = [1] }'): "lists of [1, 2]",
    ('["u8x8", "u8x16"]', "[8, 16]"): "no type variable",
    ('mnemonic = "and"\n', ""): "missing required field `mnemonic`",
    ('mnemonic = "and"', 'mnemonic = ["and"]'): "mnemonic: want one for all forms or a list of 2, one a form; got 1",
    ('mnemonic = "and"', 'mnemonic = "AND"'): "mnemonic: want small letters and digits, and ' | ' between choices",
    ('mnemonic = "and"', 'mnemonic = "and|bic"'): "not 'and|bic'",
    ('"u8x16"', '"u8x16q"'): "bad vector type 'u8x16q'",
    ('"u8x16"', '"u9x16"'): "bad vector type 'u9x16'",
    ('"u8x16"', '"u8x32"'): "no ctype for u8x32",
    ('out = "T"', 'out = "U"'): "bad vector type 'U'",
    ('b = "T"', 'b = "V"'): "bad vector type 'V'",
    ("a[i] & b[i]", "a[i] & c[i]"): "unknown name 'c'",
    ("a[i] & b[i]", "a[i] &"): "does not parse",
    ("a[i] & b[i]", "__import__('os')"): "unknown name '__import__'",
    ("vand{T.q}", "vand{T.p}"): "does not fill",
    ("vand{T.q}", "vand{U}"): "does not fill",
    ("vand{T.q}", "vand{T:zz}"): "not {T:zz}",
    ("vand{T.q}", "vand{T"): "does not fill",
    ("vand{T.q}", "vand{{x}}"): "does not fill",
    ("vand{T.q}", "vand{}"): "does not fill",
    ("({a}, {b})", "({to}, {b})"): "the hole {to} is what a store has",
    ('out = "T"', 'out = "T"\nstore = true'): "the hole {to} is what a store has",
    ('out = "T"', 'out = "T"\ntied = ["c"]'): "`tied` names c",
    ('out = "T"', 'out = "T"\nhigh = "and2"'): "no 'and2' of the same operands",
    ('out = "T"', 'out = "T"\ntry_imm = [1]'): "try_imm",
    ('out = "T"', 'out = "T"\nimm = { n = [0, 7], m = [0, 7] }'): "at most one immediate",
    ('out = "T"', 'out = "T"\nimm = { n = [0, "most"] }'): "immediate bound 'most'",
    ('out = "T"', 'out = "T"\nimm = { n = [7, 0] }'): "want immediates",
    ('out = "T"', 'out = "T"\nimm = { n = [0] }'): "Expected `array` of length 2",
    ('in = { a = "T"', 'in = { i = "T"'): "'i': want different names",
    ('in = { a = "T"', 'in = { T = "T"'): "'T', 'T': want different names",
    ('in = { a = "T"', 'in = { zext = "T"'): "'zext': want different names",
    ('in = { a = "T"', 'in = { if = "T"'): "'if': want different names",
    ('in = { a = "T"', 'in = { "a b" = "T"'): "'a b': want different names",
    ("per_cycle = 1.5", "per_cycle = 2.5"): "cost for a72: 2.5 start a cycle, where at most 2 can",
    ('out = "T"', 'out = "T"\nfeature = "dotprod"'): "unknown feature 'dotprod'",
    ('out = "T"', 'out = "T"\ninstructions = 0'): "instructions is 0, and must be 1 or more",
    ('out = "T"', 'out = "T"\ninstructions = 1.5'): "Expected `int`, got `float`",
    ("# end", "x = " + "[" * 3000): "",
    ("# end", "\udc80"): "",
}


@pytest.mark.parametrize(("change", "why"), BROKEN.items(), ids=[f"{a[:12]}->{b[:20]!r}" for a, b in BROKEN])
def test_what_is_wrong_is_named(folder, change, why):
    old, new = change
    text = f"{AND}# end\n"
    assert old in text
    (folder / "some.toml").write_bytes(text.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    with pytest.raises(SpecError) as error:
        load.load_folder(folder)
    assert str(folder) in str(error.value)
    assert why in str(error.value)


ISA_BROKEN = {
    ('name = "neon"', 'name = "noen"'): "name is 'noen', the folder is 'neon'",
    ("registers = 32", "registers = 0"): "a register or more",
    ("vector_bits = 128", "vector_bits = 100"): "vector_bits of",
    ("vector_per_cycle = 2.0", "vector_per_cycle = 0.0"): "above 0",
    ("vector_per_cycle = 2.0", "vector_per_cycle = nan"): "above 0",
    ("vector_per_cycle = 2.0", "vector_per_cycle = 2.0\noverlap = 1.5"): "overlap of 0 to 1",
    ("vector_per_cycle = 2.0", "vector_per_cycle = 2.0\nslower = 0.0"): "slower above 0",
    ("vector_per_cycle = 2.0", "vector_per_cycle = 2.0\nprefetch_turns = 4"): "that are in order",
    ('u8x8 = "', 'u8 = "'): "bad vector type 'u8'",
    ('arch = "aarch64"\n', ""): "missing required field `arch`",
    ("[isa]", "[isa]\ncolour = 1"): "unknown field `colour`",
    ("[isa]", '[isa]\ncpus = ["a53"]'): "extends None, which is no other instruction set",
    ("[isa]", '[isa]\nextends = "neon"'): "extends 'neon', which is no other instruction set",
    ("[isa]", '[isa]\nextends = "sve"'): "extends 'sve', which is no other instruction set",
    ("[isa]", "[isa"): "Expected ']'",
}


@pytest.mark.parametrize(("change", "why"), ISA_BROKEN.items())
def test_a_wrong_isa_file_is_named(folder, change, why):
    text = (folder / "isa.toml").read_text(encoding="utf-8")
    assert change[0] in text
    (folder / "isa.toml").write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(SpecError) as error:
        load.load_folder(folder)
    assert str(folder / "isa.toml") in str(error.value)
    assert why in str(error.value)


FEATURES = """
[isa.features.crypto]
doc = "Rounds of ciphers."
macro = "__ARM_FEATURE_CRYPTO"
cc_flags = ["-march=armv8-a+crypto"]
host = ["aes", "sha2"]

[isa.features.dotprod]
doc = "Dot products of bytes."
macro = "__ARM_FEATURE_DOTPROD"
cc_flags = ["-march=armv8.2-a+dotprod"]
host = ["asimddp"]
"""


PROBES = {"aes": "has(3)", "sha2": "has(6)", "asimddp": "has(20)"}


def with_features(folder, text=FEATURES, a72='["crypto"]', probes=PROBES):
    path = folder / "isa.toml"
    known = "".join(f'{feature} = "{c}"\n' for feature, c in probes.items())
    old = path.read_text(encoding="utf-8").replace("[isa.probes]\n", f"[isa.probes]\n{known}")
    a53 = old.replace("[isa.cpu.a72]", f"[isa.cpu.a72]\nfeatures = {a72}")
    path.write_text(a53.replace("[isa.cpu.a53]", "[isa.cpu.a53]\nfeatures = []") + text, encoding="utf-8")


def owned(table, name, feature, *cpus):
    """`table` as a form of a feature set, with costs for `cpus`."""
    cost = ", ".join(f"{cpu} = {{ lat = 1, per_cycle = 1.0 }}" for cpu in cpus)
    lines = [line for line in table.splitlines() if not line.startswith("cost")]
    text = "\n".join([*lines, f'feature = "{feature}"', f"cost = {{ {cost} }}", ""])
    return text.replace("[instr.and]", f"[instr.{name}]")


def test_a_cpu_has_the_forms_of_its_features(folder):
    with_features(folder)
    isa = read(folder, AND + owned(AND, "dot", "dotprod", "a76") + owned(AND, "aes", "crypto", "a72", "a76"))
    assert isa.for_cpu("a76") is isa
    assert isa.for_cpu("a53") is isa.for_cpu("a53")
    assert (isa.for_cpu("a53").name, list(isa.for_cpu("a53").instrs)) == ("neon", ["and.u8x8", "and.u8x16"])
    assert {i.rpartition(".")[0] for i in isa.for_cpu("a72").instrs} == {"and", "aes"}
    assert set(isa["dot.u8x8"].cost) == {"a76"}
    with pytest.raises(SpecError, match="unknown cpu 'm1'; neon knows a53, a72, a76"):
        isa.for_cpu("m1")


def test_requirements_are_those_of_the_forms_used_base_first(folder):
    with_features(folder)
    isa = read(folder, AND + owned(AND, "dot", "dotprod", "a76") + owned(AND, "aes", "crypto", "a72", "a76"))
    base = isa.requirements()
    assert base == isa.requirements(["and.u8x8"])
    assert (base.macros, base.cc_flags, base.host) == (("__ARM_NEON",), ("-march=armv8-a",), ("asimd",))
    both = isa.requirements(["dot.u8x8", "and.u8x8", "aes.u8x16"])
    assert both == isa.requirements(["aes.u8x16", "dot.u8x16", "dot.u8x8"])
    assert both.macros == ("__ARM_NEON", "__ARM_FEATURE_CRYPTO", "__ARM_FEATURE_DOTPROD")
    assert both.cc_flags == ("-march=armv8-a", "-march=armv8-a+crypto", "-march=armv8.2-a+dotprod")
    assert both.host == ("asimd", "aes", "sha2", "asimddp")
    with pytest.raises(SpecError, match="no instruction 'mystery'"):
        isa.requirements(["mystery"])


def test_a_digest_covers_the_flags_of_the_feature(folder):
    with_features(folder)
    isa = read(folder, AND + owned(AND, "dot", "dotprod", "a76"))
    shutil.copy(paths.isa_specs() / "neon" / "isa.toml", folder)
    with_features(folder, FEATURES.replace("+dotprod", "+dotprod+i8mm"))
    other = load.load_folder(folder)
    assert isa["and.u8x8"].digest == other["and.u8x8"].digest
    assert isa["dot.u8x8"].digest != other["dot.u8x8"].digest


def test_a_digest_covers_the_probes_of_the_features_needed(folder):
    with_features(folder)
    isa = read(folder, AND + owned(AND, "dot", "dotprod", "a76"))
    for feature, changed in (("asimddp", ["dot.u8x8"]), ("asimd", ["and.u8x8", "dot.u8x8"]), ("aes", [])):
        shutil.copy(paths.isa_specs() / "neon" / "isa.toml", folder)
        with_features(folder)
        path = folder / "isa.toml"
        path.write_text(re.sub(rf"^{feature} = .*$", f'{feature} = "has(31)"', path.read_text(), flags=re.MULTILINE))
        other = load.load_folder(folder)
        assert [n for n in ("and.u8x8", "dot.u8x8") if isa[n].digest != other[n].digest] == changed


@pytest.mark.parametrize(
    ("cpus", "why"),
    [
        ((), "no cost for a76"),
        (("a76", "a72"), "cost for a72, without the feature dotprod"),
        (("a76", "m1"), "cost for unknown cpu m1"),
    ],
)
def test_a_form_of_a_feature_has_costs_for_the_cpus_that_have_it(folder, cpus, why):
    with_features(folder)
    with pytest.raises(SpecError, match=why) as error:
        read(folder, owned(AND, "dot", "dotprod", *cpus))
    assert f"{folder / 'some.toml'}: dot: " in str(error.value)


@pytest.mark.parametrize(
    ("text", "a72", "why"),
    [
        (FEATURES, '["sve"]', "unknown feature of cpu.a72 'sve'; known: crypto, dotprod"),
        (FEATURES, '["crypto", "crypto"]', "a feature of cpu.a72 is named twice"),
        (FEATURES + FEATURES[: FEATURES.index("[isa.features.dotprod]")], "[]", "Cannot declare"),
        (FEATURES.replace("CRYPTO", "DOTPROD"), "[]", "two of them have the macro __ARM_FEATURE_DOTPROD"),
        (FEATURES.replace("__ARM_FEATURE_CRYPTO", "a b"), "[]", "features.crypto: want the name of a macro"),
        (FEATURES.replace('["asimddp"]', "[]"), "[]", "features.dotprod: want"),
        (FEATURES.replace("host", "hosts", 1), "[]", "unknown field `hosts`"),
    ],
)
def test_wrong_features_are_named(folder, text, a72, why):
    with_features(folder, text, a72)
    with pytest.raises(SpecError) as error:
        load.load_folder(folder)
    assert str(folder / "isa.toml") in str(error.value)
    assert why in str(error.value)


@pytest.mark.parametrize("feature", PROBES)
def test_a_feature_that_c_cannot_ask_for_is_named(folder, feature):
    with_features(folder, probes={f: c for f, c in PROBES.items() if f != feature})
    with pytest.raises(SpecError) as error:
        load.load_folder(folder)
    assert str(error.value).startswith(f"{folder / 'isa.toml'}: probes: want a C expression that asks for {feature}")


CHILD = """
[isa]
name = "child"
doc = "NEON and more."
extends = "neon"
cpus = ["a76"]
feature = "__ARM_FEATURE_DOTPROD"
cc_flags = ["-march=armv8.2-a+dotprod"]
host_features = ["asimd", "asimddp"]

[isa.ctype]
u8x64 = "my_type"

[isa.probes]
asimddp = "has(20)"

[isa.sources]
own = "measured"
"""


def child(folder, isa=CHILD, text=""):
    """A set that extends the one in `folder`."""
    home = folder.parent / "child"
    home.mkdir(exist_ok=True)
    (home / "isa.toml").write_text(isa, encoding="utf-8")
    if text:
        (home / "own.toml").write_text(text, encoding="utf-8")
    return load.load_folder(home)


def test_a_set_that_extends_another_has_all_of_it_and_its_own(folder):
    parent = read(folder, AND + SHIFT)
    isa = child(folder, text=owned(AND, "dot", "", "a76").replace("insn_bench", "own"))
    assert list(isa.instrs) == [*parent.instrs, "dot.u8x8", "dot.u8x16"]
    assert {i.isa for i in isa.instrs.values()} == {"child"}
    assert all(set(i.cost) == {"a76"} for i in isa.instrs.values())
    assert (list(isa.table.cpu), isa.table.registers, isa.table.header) == (["a76"], 32, "arm_neon.h")
    assert isa.table.ctype == {**parent.table.ctype, "u8x64": "my_type"}
    assert isa.requirements(["and.u8x8"]).cc_flags == ("-march=armv8.2-a+dotprod",)
    assert isa["and.u8x8"].digest != parent["and.u8x8"].digest
    assert isa["and.u8x8"].render(["x", "y"]) == parent["and.u8x8"].render(["x", "y"])


def test_an_extension_keeps_all_cpus_if_it_names_none(folder):
    parent = read(folder, AND)
    isa = child(folder, CHILD.replace('cpus = ["a76"]', ""))
    assert isa.table.cpu == parent.table.cpu
    assert isa["and.u8x8"].cost == parent["and.u8x8"].cost


CHILD_BROKEN = {
    ('"a76"', '"m1"'): "unknown cpu 'm1'; known: a53, a72, a76",
    ('"a76"', '"a76", "a76"'): "a cpu is named twice",
    ('doc = "NEON and more."', ""): "Expected `str`, got `null`",
    ('extends = "neon"', ""): "extends None",
    ('extends = "neon"', 'extends = "./neon"'): "extends './neon'",
    ('extends = "neon"', "extends = [1]"): "extends [1]",
    ("[isa.ctype]", "[isa.cpu.m1]\ndoc = 'x'\n[isa.ctype]"): "its cpus are the cpus of neon",
    ("[isa.ctype]", "[isa.ctypes]"): "unknown field `ctypes`",
    ("[isa.ctype]\nu8x64 =", "ctype ="): "Expected `object`, got `str`",
}


@pytest.mark.parametrize(("change", "why"), CHILD_BROKEN.items())
def test_a_wrong_extension_is_named(folder, change, why):
    assert change[0] in CHILD
    with pytest.raises(SpecError) as error:
        child(folder, CHILD.replace(*change))
    assert str(folder.parent / "child" / "isa.toml") in str(error.value)
    assert why in str(error.value)


def test_extensions_are_not_extended(folder):
    child(folder)
    grandchild = folder.parent / "grandchild"
    grandchild.mkdir()
    (grandchild / "isa.toml").write_text('[isa]\nname = "grandchild"\nextends = "child"', encoding="utf-8")
    with pytest.raises(SpecError, match="extends child, which itself extends another"):
        load.load_folder(grandchild)


@pytest.mark.parametrize("text", ["isa = 5", "", "[["])
def test_an_extension_of_a_broken_set_names_that_one(folder, text):
    (folder / "isa.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as error:
        child(folder)
    assert str(folder / "isa.toml") in str(error.value)


def test_own_forms_of_an_extension_are_checked(folder):
    read(folder, AND)
    with pytest.raises(SpecError, match=r"own\.toml: and\.u8x8 is declared twice"):
        child(folder, text=owned(AND, "and", "", "a76"))
    with pytest.raises(SpecError, match=r"own\.toml: dot: cost for unknown cpu a53"):
        child(folder, text=owned(AND, "dot", "", "a53", "a76"))


def test_instructions_of_a_form(folder):
    isa = read(folder, AND + SHIFT.replace('out = "T"', 'out = "T"\ninstructions = 2'))
    assert (isa["and.u8x8"].instructions, isa["shl.u8x16"].instructions) == (1, 2)


@pytest.mark.parametrize("name", ["isa.toml", "some.toml"])
def test_every_truncation_is_one_error_or_a_smaller_set(folder, name):
    """No prefix of a file gives anything but a SpecError or the declarations it holds."""
    (folder / "some.toml").write_text(AND, encoding="utf-8")
    whole = (folder / name).read_bytes()
    for size in range(0, len(whole), 7):
        (folder / name).write_bytes(whole[:size])
        try:
            isa = load.load_folder(folder)
        except SpecError as error:
            assert str(folder) in str(error)  # A cut file may be whole.  # noqa: PT017
        else:
            assert {n.partition(".")[0] for n in isa.instrs} <= {"and"}


def test_missing_and_unreadable_files(folder):
    (folder / "dir.toml").mkdir()
    with pytest.raises(SpecError, match=r"dir\.toml"):
        load.load_folder(folder)
    (folder / "isa.toml").unlink()
    with pytest.raises(SpecError, match=r"isa\.toml is missing"):
        load.load_folder(folder)


def test_the_facts_of_a_set_are_read_without_its_forms():
    for name in load.names():
        assert load.load_table(name) == load.load(name).table


def test_unknown_names():
    with pytest.raises(SpecError, match=r"unknown instruction set 'z80'; known: .*avx2, .*neon"):
        load.load("z80")
    with pytest.raises(SpecError, match=r"neon has no instruction 'andy'"):
        load.load("neon")["andy"]


@pytest.mark.parametrize("text", ["", "u8", "u8x", "u8x0", "x16", "u8x16 ", "U8x16", "u8x100", "s7x8"])
def test_bad_types(text):
    with pytest.raises(SpecError, match="want for example 'u8x16'"):
        VecType.parse(text)


def test_types_spell_themselves():
    t = VecType.parse("s16x8")
    assert (f"{t}", f"{t:v}", f"{t:c}", t.q, t.total_bits) == ("s16", "s16x8", "int16_t", "q", 128)
    assert (f"{VecType.parse('u8x8'):c}", VecType.parse("u8x8").q) == ("uint8_t", "")


ALL = [instr for name in load.names() for instr in load.load(name).instrs.values()]


@pytest.mark.parametrize("instr", [i for i in ALL if i.high], ids=lambda i: i.name)
def test_high_partners_do_the_high_half(instr):
    """`low` on operands whose narrow vectors are turned by half a register is `high`."""
    from bitsynth.isa.domains.reads import ReadsDomain

    partner = load.load(instr.isa)[f"{instr.high}.{instr.name.rpartition('.')[2]}"]
    half = instr.out.lanes
    plain = [[frozenset({(k, j)}) for j in range(o.type.lanes)] for k, o in enumerate(instr.operands)]
    turned = [x if len(x) == half else x[half:] + x[:half] for x in plain]
    assert partner(ReadsDomain(), plain) == instr(ReadsDomain(), turned)
    assert partner.lane == instr.lane.replace("a[i]", "a[i + W_lanes]").replace("b[i]", "b[i + W_lanes]")


def test_every_form_fits_its_registers():
    for instr in ALL:
        isa = load.load(instr.isa)
        sizes = [instr.out, *(o.type for o in instr.operands if not o.memory)]
        assert all(t.total_bits <= isa.table.vector_bits for t in sizes), instr.name
        assert instr.store == ("{to}" in instr.text)
