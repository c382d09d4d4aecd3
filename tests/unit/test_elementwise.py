"""Elementwise programs: found, proved, refused if wrong, stored, and the same in C."""

import json

import msgspec
import numpy as np
import pytest
from support.case_selection import quick
from support.programs import change, lines

from bitsynth.cli import main
from bitsynth.emit.elementwise import source
from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.isa.load import load
from bitsynth.isa.step import to_json
from bitsynth.layers.epilogues.thresholds import thresholds_spec
from bitsynth.proof.elementwise.checker import check
from bitsynth.proof.elementwise.discharge import discharge
from bitsynth.proof.proved import Proved
from bitsynth.run.runner import runner_for
from bitsynth.schedule import element_cost
from bitsynth.solver.budget import Budget
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.synth import elementwise as synth
from bitsynth.toolchain.library import compile_for

SPEC = thresholds_spec(3, words=False, row=True)
WRAPPER = """
void run_{name}(const size_t *n, const void *constants, const void *from, const int32_t *row, void *to);
void run_{name}(const size_t *n, const void *constants, const void *from, const int32_t *row, void *to)
{{ {name}(constants, 0, n[0], n[1], from, n[2], row, 0, 0, to, n[3]); }}
"""


def shipped(isa, levels):
    names = tuple(f"thresholds{n}_" for n in levels)
    return [
        ELEMENTWISE.load(p).artifact
        for p in ELEMENTWISE.every()
        if p.parents[1].name == isa and p.stem.startswith(names)
    ]


def packed(codes, planes):
    """Codes (rows, channels) as words, byte by byte."""
    bits = codes.reshape(len(codes), -1, 8, 8, 1) >> np.arange(planes, dtype=np.uint8) & 1
    bytes_ = (bits << np.arange(8, dtype=np.uint8)[:, None, None]).sum(axis=2, dtype=np.uint8)
    return np.ascontiguousarray(bytes_.transpose(0, 1, 3, 2))


@pytest.mark.toolchains
@pytest.mark.parametrize("name", quick(["avx2", "neon"], of=["avx2", "avx512", "neon", "armv7_neon"]))
@pytest.mark.parametrize(
    "levels", [(1,), pytest.param((3, 7, 15, 31, 63, 127, 255), marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_c_gives_what_numpy_gives(name, levels):
    programs, isa = shipped(name, levels), load(name)
    text = source(programs) + "".join(WRAPPER.format(name=p.name) for p in programs)
    try:
        runner = runner_for(isa, compile_for(isa, {"programs.c": text}))
    except ToolError as error:
        pytest.skip(str(error))
    assert programs
    for program in programs:
        compare(runner, program)


def compare(runner, program):
    """What the C gives for random sums, and what numpy does."""
    rng, words = np.random.default_rng(1), np.uint32 if load(program.isa).table.arch == "arm" else np.uint64
    rows, units, channels = 3, 2, 2 * program.unit - 5
    given = program.spec.inputs[-1]
    flip = -rng.integers(0, 2, channels) * any(x.name == "m" for x in program.spec.inputs)
    levels = np.sort(rng.integers(-9, 9, (given.values, channels)), axis=0)
    sums = rng.integers(-10, 10, (rows, channels)).astype(np.int32)
    row = rng.integers(-3, 4, rows).astype(np.int32) * any(x.per == "row" for x in program.spec.inputs)
    ordered = np.zeros((rows, units * program.unit), np.int32)
    places = (np.arange(units)[:, None] * program.unit + np.array(program.order)).reshape(-1)
    ordered[:, places < channels] = sums[:, places[places < channels]]
    to = np.zeros((rows, units * program.result_bytes), np.uint8)
    sizes = np.array([rows, units * program.unit, ordered.strides[0], to.strides[0]], words)
    runner.call(
        f"run_{program.name}",
        sizes,
        program.pack(channels, {"t": levels, "m": flip}),
        ordered,
        row.astype(np.int32),
        to,
    )
    want = ((sums + row[:, None] ^ flip) > levels[:, None]).sum(axis=0).astype(np.uint8)
    if program.spec.out == "words":
        whole = np.zeros((rows, units * program.unit), np.uint8)
        whole[:, :channels] = want
        beyond = np.zeros_like(whole)
        beyond[:, channels:] = (1 << program.spec.planes) - 1
        mask = ~packed(beyond, program.spec.planes).reshape(rows, -1)
        assert (to & mask == packed(whole, program.spec.planes).reshape(rows, -1)).all()
    else:
        assert (to[:, :channels] == want).all()


def test_a_program_is_proved_and_stored(tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    proved = synth.solve("avx2", thresholds_spec(1, words=False))
    path = ELEMENTWISE.store(proved)
    assert ELEMENTWISE.load(path).artifact == proved.artifact
    path.write_bytes(path.read_bytes().replace(b"slt", b"ult"))
    ELEMENTWISE.forget()
    with pytest.raises(SpecError, match="damaged"):
        ELEMENTWISE.load(path)


CHANGED = {
    "unit": lambda p: {"unit": 10**15},
    "values": lambda p: {
        "spec": msgspec.structs.replace(
            p.spec, inputs=(*p.spec.inputs[:-1], msgspec.structs.replace(p.spec.inputs[-1], count=10**12))
        )
    },
    "no such result": lambda p: {"results": ("zz",) * len(p.results)},
    "no steps": lambda p: {"program": ()},
    "a keyword of C": lambda p: {"program": tuple(line.replace("v0", "while") for line in lines(p.steps))},
    "an input's name": lambda p: {"program": (*p.steps, lines(p.steps)[-1].replace(p.results[-1], "s0_0", 1))},
    "a value made twice": lambda p: {"program": (*p.steps, p.steps[-1])},
    "a constant's name": lambda p: {"constants": (change(p.constants[0], name="in"),)},
}


@pytest.mark.parametrize("what", CHANGED)
def test_programs_that_are_not_of_the_form_are_refused(what):
    program = ELEMENTWISE.load(ELEMENTWISE.find_named(f"{thresholds_spec(3, words=False).name}_avx2")).artifact
    with pytest.raises(SpecError, match=r"want a unit of|no name of a|defined twice|has no value"):
        check(change(program, **CHANGED[what](program)))


def test_a_record_of_other_statements_is_refused():
    program = ELEMENTWISE.find("avx2", SPEC).artifact
    with pytest.raises(SpecError, match="statements differ"):
        Proved.on_record(program, ("for every s: 0",))


def other_lines(name, old, new):
    """The record of a stored program whose program has other lines, else unchanged, with its digest."""
    record = ELEMENTWISE.read(ELEMENTWISE.find_named(name))
    text = "\n".join(lines(record.program.steps))
    assert text.count(old) == 1
    program = change(record.program, program=tuple(text.replace(old, new).split("\n")))
    return msgspec.structs.replace(record, program=program).with_digest()


CHECKER_ACCEPTS = {
    "wrong": (
        "thresholds15_s16_row_words_avx2",
        "v32 = blendv.u8x32 t4_0 t12_0 v12",
        "v32 = blendv.u8x32 s0_4 t12_0 v12",
    ),
    "wrong in a few places": ("signs_avx2", "v9 = add.u32x8 v5 k1", "v9 = add.u64x4 v5 k1"),
    "right, in another order": (
        "dequantize_codes_avx2",
        "v7 = mullo32.u32x8 v3 f0_0\nv8 = mullo32.u32x8 v5 f0_0",
        "v8 = mullo32.u32x8 v5 f0_0\nv7 = mullo32.u32x8 v3 f0_0",
    ),
}
"""Programs that are one change away from a stored one, which the checker does not refuse: Z3 has not seen them."""


@pytest.mark.parametrize("what", CHECKER_ACCEPTS)
def test_a_program_that_z3_has_not_seen_is_refused(tmp_path, what):
    """A record's statements name the program, so that another program's statements do not serve it."""
    record = other_lines(*CHECKER_ACCEPTS[what])
    assert check(record.program) > 0
    path = tmp_path / f"{record.name}.json"
    path.write_bytes(to_json(record))
    with pytest.raises(SpecError, match="the statements differ"):
        ELEMENTWISE.load(path)
    with pytest.raises(SpecError, match="the statements differ"):
        Proved.on_record(record.program, record.statements)


@pytest.mark.parametrize("what", [what for what in CHECKER_ACCEPTS if what.startswith("wrong")])
def test_what_the_checker_misses_is_wrong(what):
    """More columns of inputs refute what 48 do not."""
    program = other_lines(*CHECKER_ACCEPTS[what]).program
    with pytest.raises(Refuted):
        check(program, 4096)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(ELEMENTWISE.every())[7::48], ids=lambda p: p.stem)
def test_solver_proves_what_is_on_record(path):
    on_record = ELEMENTWISE.load(path)
    proved = Proved.by_solver(on_record.artifact, Budget())
    assert ELEMENTWISE.record_of(proved) == ELEMENTWISE.record_of(on_record)


def test_a_meaning_is_computed_as_it_is_written():
    two = (ElementInput("x", "u8"), ElementInput("y", "u8"))
    program = synth.solve("avx2", ElementwiseSpec("greatest", two, "ite(ult(x, y), y, x)", "u8")).artifact
    assert len(program.steps) == 1
    assert program.order == tuple(range(program.unit))
    sums = (ElementInput("s", "s32"), ElementInput("r", "s32", "row"), ElementInput("c", "s32", "channel"))
    assert synth.solve("avx2", ElementwiseSpec("affine", sums, "asr(s + r + c, 1)", "s32")).artifact.spec.out == "s32"


def test_nested_conditions_that_do_not_nest_are_refused():
    spec = thresholds_spec(3, words=False)
    program = ELEMENTWISE.find("avx2", spec).artifact
    loose = msgspec.structs.replace(program, spec=msgspec.structs.replace(spec, assumes=()))
    with pytest.raises(Refuted):
        discharge(loose, Budget())


def test_verify(capsys):
    name = f"{SPEC.name}_avx2"
    assert main(["verify", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["concrete", "machine", "claims", "proved"]
    assert main(["verify", name, "--no-z3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert not facts["proved"]
    assert facts["composition_checked"]


def test_a_loop_is_proved_turn_by_turn():
    program = ELEMENTWISE.find("avx2", thresholds_spec(31, words=True)).artifact
    assert program.loop
    again = lines(program.loop.steps)
    for n, line in enumerate(again):
        if " = sub." in line or " = cmpgt." in line:
            dst, _, op, a, b = line.split()
            turned = (*again[:n], f"{dst} = {op} {b} {a}", *again[n + 1 :])
            mutant = change(program, loop=change(program.loop, program=turned))
            with pytest.raises(Refuted):
                check(mutant)
            with pytest.raises(Refuted):
                discharge(mutant, Budget())
            break
    other = msgspec.structs.replace(program, spec=msgspec.structs.replace(program.spec, meaning="zext(trunc(s, 8), 8)"))
    with pytest.raises(Refuted):
        discharge(other, Budget())


@pytest.mark.parametrize(("isa", "levels", "late"), [("neon", 7, True), ("neon", 1, False), ("avx2", 7, False)])
def test_constants_that_registers_do_not_hold_are_loaded_by_rows(isa, levels, late):
    (program,) = (p for p in shipped(isa, [levels]) if p.name == f"thresholds{levels}_s32_words_{isa}")
    head, rows = source([program]).split("for (size_t i = 0;")
    for place in (head, rows):
        assert (f" t{levels - 1}_0 = " in place) == (late == (place is rows))
    result = {name for step in program.by_elements for name in [step.dst]}
    seen: set[str] = set()
    for step in program.by_elements:
        assert not {*step.args} & (result - seen)
        seen.add(step.dst)
    assert sorted(map(str, program.by_elements)) == sorted(lines(program.steps))


def short(words):
    return thresholds_spec(3, words=words, narrow=True, short=True)


def test_short_sums_are_narrowed_by_one_instruction():
    program = ELEMENTWISE.find("neon", short(words=True)).artifact
    saturated = ELEMENTWISE.find("neon", thresholds_spec(3, words=True, narrow=True)).artifact
    assert element_cost.cycles(program, "a76") < 0.8 * element_cost.cycles(saturated, "a76")


def test_sums_that_are_not_known_to_be_short_are_saturated():
    program = ELEMENTWISE.find("neon", short(words=True)).artifact
    loose = msgspec.structs.replace(program, spec=thresholds_spec(3, words=True, narrow=True))
    with pytest.raises(Refuted):
        discharge(loose, Budget())


@pytest.mark.parametrize("options", [{}, {"narrow": True, "row": True}])
def test_short_sums_have_short_thresholds_and_no_addend(options):
    with pytest.raises(SpecError, match="short sums"):
        thresholds_spec(3, words=True, short=True, **options)
