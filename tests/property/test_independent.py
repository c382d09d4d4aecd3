"""The second checker of kernels accepts what ships, refuses what is wrong, and shares no code with bitsynth."""

import ast
import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import kernel_mutants
from support.case_selection import quick
from support.solved_kernels import REPRESENTATIVE, kernel, name

from bitsynth import paths
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import load
from bitsynth.isa.step import to_builtins
from bitsynth.kernel.names import KernelName
from bitsynth.matmul import MatmulKernel, cached_kernel
from bitsynth.proof import checker, counterexample, independent
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, affine
from bitsynth.spec.options import KernelOptions
from bitsynth.store.matmul import MATMUL

# `bitsynth verify` runs the second checker on the kernel that it is given. All 735 that ship take ten minutes of CPU:
# `benchmarks/shipped_kernels.py --recheck` runs it on all before a release, and a test run on some.
SHIPPED = [
    path
    for path in sorted(paths.shipped_kernels().rglob("bs_mm_*.json"))
    if not {"depthwise", "elementwise"} & set(path.parts)
]
FAST = [
    paths.shipped_kernels() / text
    for text in (
        "avx2/bs_mm_a2u_w2b_s32_avx2_3x64x4.json",
        "avx2/bs_mm_a4u_w4b_s32_avx2_8x16x4.json",
        "neon/bs_mm_a1u_w1b_s32_neon_12x8x64.json",
        "neon/bs_mm_a2u_w1b_s32_neon_6x64x4.json",
        "neon/bs_mm_a8u_w4s_s32_neon_4x48x1.json",
        "neon_dotprod/bs_mm_a3u_w3b_s32_neon_dotprod_6x16x16.json",
    )
]
SEED = 41


def check(record):
    return independent.check(record, paths.isa_folder(record["kernel"]["isa"]))


def record_of(found, stored):
    """The file of a kernel that differs from a stored one in its program alone."""
    return stored | {"kernel": to_builtins(found)}


@pytest.mark.parametrize(
    "path", quick(FAST, of=sorted({*FAST, *SHIPPED[::20]})), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_shipped_kernels_are_accepted_or_of_a_kind_that_is_named(path):
    record = json.loads(path.read_bytes())
    kind = record["kernel"]
    if independent.not_covered(kind):
        assert record["method"] == "fip" or kind.get("beside")
        with pytest.raises(independent.NotCovered, match="not covered by the second checker: "):
            check(record)
    else:
        assert [claim.split(":")[0] for claim in check(record)] == [
            "layout", "moves", "tables", "products", "padding", "bound",
        ]  # fmt: skip


def judge(path, mutants):
    """Refuse every mutant of a stored kernel that gives a wrong result; return how many are refused and accepted.

    What both checkers accept is run on numbers by `test_mutants`.
    """
    stored = json.loads(path.read_bytes())
    verdicts: Counter[str] = Counter()
    for label, mutant in mutants:
        try:
            check(record_of(mutant, stored))
        except (independent.Wrong, independent.NotCovered):
            verdicts["refused"] += 1
            continue
        verdicts["accepted"] += 1
        try:
            checker.check(mutant)
        except SpecError:
            pass  # no C is written of it, as of a kernel with values that nothing reads
        except Refuted:
            wrong = counterexample.counterexample(mutant, thorough=False)
            assert wrong is None, f"{label} is accepted, but {wrong}"
    return verdicts["refused"], verdicts["accepted"]


@pytest.mark.parametrize("path", FAST[3:4], ids=lambda p: p.stem)
def test_wrong_mutants_are_refused(path):
    refused, accepted = judge(path, kernel_mutants.sample(MATMUL.read(path).kernel, 1, SEED)[::6])
    assert refused > 2 * accepted > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", [*FAST[::2], *SHIPPED[::240]], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_wrong_mutants_of_many_are_refused(path):
    if not independent.not_covered(json.loads(path.read_bytes())["kernel"]):
        refused, accepted = judge(path, kernel_mutants.sample(MATMUL.read(path).kernel, 1, SEED + 1))
        assert refused > 2 * accepted


@pytest.mark.slow
@pytest.mark.parametrize("config", REPRESENTATIVE[::2], ids=name)
def test_both_checkers_agree_on_solved_kernels(config):
    isa, _, act_bits, w_bits = config
    found = kernel(*config)
    record = {
        "name": str(KernelName.of(found, MatmulSpec.plain(isa, act_bits, w_bits))),
        "kernel": to_builtins(found),
        "certificate": {"k_max": found.core.k_max},
    }
    checker.check(found)
    if not independent.not_covered(record["kernel"]):
        check(record)


EDITS = [
    ("passes", lambda k: k["passes"][0]["loops"][0].update(times=22), "holds|hold|cut"),
    ("terms", lambda k: k["row_terms"].__setitem__(1, 0), "act code"),
    ("slots", lambda k: k["slots"].__setitem__(slice(0, 2), [1, 0]), "column"),
    ("slot twice", lambda k: k["slots"].__setitem__(0, 1), "slots"),
    ("a name", lambda k: k["passes"][0]["flush"].__setitem__(0, "t0 = umlal.u16x8 c0 acc9999 k0"), "no value"),
    ("a form", lambda k: k["passes"][0]["flush"].__setitem__(0, "t0 = unheard.u16x8 c0"), "no instruction"),
    ("memory", lambda k: k["memory"].update(broadcast="dup8.u8x16"), "dup8"),
    ("stage", lambda k: k["build"].update(stage=[1, 0, 2, 3, 4, 5, 6, 7]), "entry"),
    ("values", lambda k: k["passes"][0]["rows"][0].update(values=[0, 1, 2, 2]), "act code 3"),
    ("truth table", lambda k: k["passes"][0]["columns"][0].update(tables=[1]), "padding|act code"),
    ("position", lambda k: k["passes"][0]["rows"][0].update(first=1), "position 4"),
    ("constant", lambda k: k["constants"][0]["lanes"].__setitem__(0, 4), "act code"),
    ("isa", lambda k: k.update(isa="avx2"), "differ"),
    ("widths", lambda k: k.update(w_bits=2), "differ"),
    ("half a run", lambda k: k["passes"][0]["loops"][0].update(times=1.5), "not whole"),
    ("columns", lambda k: k.update(columns=1 << 70), "OverflowError|column|slots"),
]


@pytest.mark.parametrize(("edit", "why"), [x[1:] for x in EDITS], ids=[x[0] for x in EDITS])
def test_edits_are_refused(edit, why):
    record = json.loads(FAST[3].read_bytes())
    edit(record["kernel"])
    with pytest.raises(independent.Wrong, match=why):
        independent.check(record, paths.isa_folder("neon"))


def test_a_bound_that_is_too_great_is_refused():
    record = json.loads(FAST[3].read_bytes())
    record["certificate"]["k_max"] += 1
    with pytest.raises(independent.Wrong, match="leaves int32"):
        check(record)


def forms_used(isa):
    programs = set()
    for path in SHIPPED:
        k = json.loads(path.read_bytes())["kernel"]
        if k["isa"] == isa and not independent.not_covered(k):
            loops = [loop for p in k["passes"] for loop in p["loops"]]
            lines = [line for loop in loops for line in (*loop["program"], *loop["first"])]
            lines += [line for p in k["passes"] for line in p["flush"]] + (k["build"]["program"] if k["build"] else [])
            programs |= {line.split()[2] for line in lines}
    return sorted(programs)


@pytest.mark.parametrize("isa", quick(["avx2"], of=["avx2", "neon", "avx512", "avxvnni", "neon_dotprod", "armv7_neon"]))
def test_meanings_are_the_declared_ones_on_numbers(isa):
    """Evaluated on constants by two evaluators that share no code, every form that kernels use gives the same."""
    declared, rng = independent.read_declared(paths.isa_folder(isa)), np.random.default_rng(5)
    used = forms_used(isa)
    assert len(used) > 10
    for form, _ in product(used, range(4)):
        theirs, ours = load(isa)[form], declared[form]
        imm = int(rng.choice(theirs.imms))
        lanes = [
            [int(x) for x in rng.integers(0, (1 << o.type.bits) - 1, o.type.lanes, np.uint64, endpoint=True)]
            for o in theirs.operands
        ]
        if form.startswith(("tbl", "shuffle", "permute")):
            lanes[1] = [x & 15 for x in lanes[1]]
        registers = [
            tuple(independent.constant(x, o.type.bits) for x in given)
            for o, given in zip(theirs.operands, lanes, strict=True)
        ]
        got = [lane.read_unsigned().const for lane in ours(registers, imm)]
        numbers = [[np.array([x], np.uint64) for x in given] for given in lanes]
        assert got == [int(np.asarray(x).ravel()[0]) for x in theirs(ConcreteDomain(), numbers, imm)], form


def random_sum(rng):
    """A sum of functions of the codes of a row and of a column at few positions, and its table over all codes."""
    total = independent.Sum(int(rng.integers(-9, 9)))
    values = np.full((3, 4, 3, 4), total.const)  # row code and column code at position 0, then at position 1
    for place, of_row in product(range(2), (True, False)):
        if rng.random() < 0.5:
            numbers = [int(x) for x in rng.integers(-20, 20, 3 if of_row else 4)]
            total = total.plus(independent.function_of_code(numbers, None if of_row else 0, place))
            shape = [1, 1, 1, 1]
            shape[2 * place + (not of_row)] = -1
            values = values + np.reshape(numbers, shape)
    return total, values


def value_of(x):
    """The table over all codes of a sum."""
    values = np.full((3, 4, 3, 4), x.const)
    for at, table in x.tables.items():
        shape = (*table.numbers.shape, 1, 1) if at.place == 0 else (1, 1, *table.numbers.shape)
        values = values + table.numbers.reshape(shape)
    return values


def operations(a, xs, b, ys, n, table):
    """Each operation on lanes, and its result on the numbers that they hold for all codes."""
    width = a.width
    every, sign = (1 << width) - 1, 1 << width - 1
    on_numbers = {
        "Add": xs + ys, "Sub": xs - ys, "Mult": xs * ys, "BitAnd": xs & ys, "BitOr": xs | ys, "BitXor": xs ^ ys,
    }  # fmt: skip
    cases: dict[str, tuple[Any, Any]] = {
        op: (partial(independent.operate, op, a, b), result) for op, result in on_numbers.items()
    }
    cases["right"] = partial(independent.shift_right, a, n), (xs & every) >> n
    cases["left"] = partial(independent.shift_left, a, n), xs << n
    cases["not"] = partial(independent.invert, a), ~xs
    cases["count"] = partial(independent.count_bits, a), sum((xs & every) >> k & 1 for k in range(width))
    cases["zext"] = partial(independent.widen, a, 32), xs & every
    cases["sext"] = lambda: independent.of_sum(a.read_signed(), 32), ((xs & every) ^ sign) - sign
    cases["less"] = lambda: independent.of_sum(independent.less_unsigned(a, b), 1), (xs & every) < (ys & every)
    if width == 4:
        entries = tuple(independent.constant(v, 8) for v in table)
        cases["lookup"] = partial(independent.look_up, entries, a), np.array(table)[xs & 15]
    return cases


def test_operations_on_sums_are_those_on_numbers():
    """Every operation that is not refused gives the same for all codes at once as for each of them."""
    rng = np.random.default_rng(7)
    done: Counter[str] = Counter()
    for _ in range(300):
        (x, xs), (y, ys) = random_sum(rng), random_sum(rng)
        width = int(rng.choice([4, 8, 16]))
        a, b = independent.of_sum(x, width), independent.of_sum(y, width)
        if rng.random() < 0.3:
            n = int(rng.integers(0, 1 << width))
            b, ys = independent.constant(n, width), np.full_like(xs, n)
        table = [int(v) for v in rng.integers(0, 200, 16)]
        for op, (ours, expected) in operations(a, xs, b, ys, int(rng.integers(0, width)), table).items():
            try:
                lane = ours()
            except independent.Wrong:
                continue
            done[op] += 1
            got, offset = np.zeros_like(xs), 0
            for field in lane.fields:
                got, offset = got + ((value_of(field.sum) & (1 << field.width) - 1) << offset), offset + field.width
            assert (got == np.asarray(expected).astype(int) & (1 << lane.width) - 1).all(), op
    assert len(done) == 14
    assert min(done.values()) > 20


def operands():
    return [MatmulOperand(b, e) for e in Encoding for b in (2, 4, 8) if b in e.widths] + [
        MatmulOperand(4, Encoding.UNSIGNED, 7)
    ]


def test_corrections_of_encodings_are_exact():
    for act, wgt in product(operands(), operands()):
        spec = MatmulSpec("avx2", act, wgt)
        signed = spec.core.wgt.encoding is Encoding.SIGNED
        a, w = (independent.EncodedCodes(x.bits, str(x.encoding), x.zero) for x in (act, wgt))
        correction = asdict(affine(spec))
        independent.check_encoding(a, w, signed, correction)
        correction["factor"] += 1
        with pytest.raises(independent.Wrong, match="first at"):
            independent.check_encoding(a, w, signed, correction)


def test_it_imports_numpy_and_the_standard_library_alone():
    tree = ast.parse(Path(independent.__file__).read_text("utf-8"))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
    assert {m.split(".")[0] for m in modules} <= {"numpy", *sys.stdlib_module_names}


def test_it_runs_as_a_script(tmp_path):
    def run(path, folder="neon"):
        command = [sys.executable, "-I", independent.__file__, str(path), str(paths.isa_folder(folder))]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    accepted = run(FAST[3])
    assert accepted.returncode == 0, accepted.stderr
    assert accepted.stdout.endswith("of them stay in int32\n")
    record = json.loads(FAST[3].read_bytes())
    record["kernel"]["row_terms"][1] = 0
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(record))
    refused = run(wrong)
    assert (refused.returncode, refused.stderr[:6]) == (1, "wrong:")


def test_exit_codes_of_other_files(tmp_path, capsys):
    record = json.loads(FAST[3].read_bytes())
    record["kernel"]["cross_terms"] = 2
    other = tmp_path / "other.json"
    other.write_text(json.dumps(record))
    assert independent.main([str(other), str(paths.isa_folder("neon"))]) == 3
    assert capsys.readouterr().err.startswith("not covered by the second checker: fast inner products")
    other.write_text("{")
    assert independent.main([str(other), str(paths.isa_folder("neon"))]) == 2
    other.write_text("[]")
    assert independent.main([str(other), str(paths.isa_folder("neon"))]) == 1
    assert "a field is missing or of another type" in capsys.readouterr().err


def test_inputs_of_a_side_share_one_code_of_padding():
    """A bit and its complement: each alone is 0 for some code, both for none."""
    record = json.loads(FAST[2].read_bytes())
    checked = independent.read_kernel(record, paths.isa_folder("neon"))
    independent.check_padding(checked)
    for side in ("rows", "columns"):
        record["kernel"]["passes"][0][side] = [{"type": "planes", "tables": [table]} for table in (2, 1)]
        with pytest.raises(independent.Wrong, match="padding is no activation of 0"):
            independent.check_padding(independent.read_kernel(record, paths.isa_folder("neon")))
        record = json.loads(FAST[2].read_bytes())


def test_inputs_of_rows_have_one_size():
    record = json.loads(FAST[2].read_bytes())
    rows = record["kernel"]["passes"][0]["rows"]
    rows.append({**rows[0], "slots": 2})
    with pytest.raises(independent.Wrong, match="inputs of rows differ in size"):
        check(record)


def test_a_disagreement_of_the_checkers_is_an_error_of_its_own(monkeypatch):
    from bitsynth.cli.artifacts import load_named

    def refuse(*_):
        raise independent.Wrong("column 0 is off")

    artifact = load_named(FAST[3].stem)
    assert artifact.check()[-1] == ("recheck", "7 claims", "checked by the second checker")
    monkeypatch.setattr(independent, "check", refuse)
    with pytest.raises(Refuted, match=r"the two checkers disagree on bs_mm_a2u_w1b.*column 0 is off"):
        artifact.check()


def write_audit(folder, isa="neon", act="unsigned", wgt="bipolar", bits=(2, 1)):
    """Write the second checker of a stored kernel and its record into a folder; return the record's path."""
    spec = MatmulSpec(isa, MatmulOperand(bits[0], Encoding(act)), MatmulOperand(bits[1], Encoding(wgt)))
    found = cached_kernel(spec, KernelOptions())
    for file, text in found.audit_files.items():
        (folder / file).write_text(text)
    return folder / f"{found.name}.kernel.json"


def run_audit(path):
    command = [sys.executable, "-I", str(path.with_name(path.name.replace(".kernel.json", "_check.py")))]
    return subprocess.run(command, capture_output=True, text=True, check=False)


AUDITED = {
    "a lookup": ("neon", "unsigned", "bipolar", (2, 1)),
    "encodings": ("avx2", "signed", "ternary", (2, 2)),
    "a set that extends another": ("neon_dotprod", "unsigned", "bipolar", (3, 3)),
}


@pytest.mark.parametrize("case", quick(["encodings"], of=list(AUDITED)))
def test_the_checker_next_to_emitted_c_runs_by_itself(case, tmp_path):
    path = write_audit(tmp_path, *AUDITED[case])
    accepted = run_audit(path)
    assert accepted.returncode == 0, accepted.stderr
    assert "encoding: the correction to" in accepted.stdout


def test_the_checker_next_to_emitted_c_refuses_what_is_wrong(tmp_path):
    """Another program, another correction, and an instruction that means something else."""
    path = write_audit(tmp_path)
    stored = json.loads(path.read_bytes())
    edits = [
        lambda x: x["kernel"]["row_terms"].__setitem__(1, 0),
        lambda x: x["encodings"]["correction"].update(factor=2),
        lambda x: next(t for form, t in x["instructions"] if form == "add").update(lane="a[i] - b[i]"),
        lambda x: x.update(instructions=[]),
    ]
    for edit in edits:
        record = json.loads(json.dumps(stored))
        edit(record)
        with pytest.raises(independent.Wrong):
            independent.check(record)
    path.write_text(json.dumps(record))
    refused = run_audit(path)
    assert (refused.returncode, refused.stderr[:6]) == (1, "wrong:"), refused.stderr


ENCODINGS = {
    "act of 1 bit": (lambda x: x["act"].update(bits=1), "other widths"),
    "wgt of 2 bits": (lambda x: x["wgt"].update(bits=2), "other widths"),
    "too many terms of act": (lambda x: x["correction"]["act_terms"].append(99), "one term for each code"),
    "too few terms of wgt": (lambda x: x["correction"]["wgt_terms"].pop(), "one term for each code"),
}


@pytest.mark.parametrize("case", ENCODINGS)
def test_encodings_are_those_of_the_kernel(case, tmp_path):
    edit, why = ENCODINGS[case]
    record = json.loads(write_audit(tmp_path).read_bytes())
    edit(record["encodings"])
    with pytest.raises(independent.Wrong, match=why):
        independent.check(record)


def test_the_checker_next_to_emitted_c_refuses_a_record_without_encodings(tmp_path):
    record = json.loads(write_audit(tmp_path).read_bytes())
    assert independent.check(record)[-1].startswith("encoding: ")
    del record["encodings"]
    with pytest.raises(independent.Wrong, match="has no encodings"):
        independent.check(record)


def test_no_checker_is_written_for_a_kernel_that_it_does_not_cover():
    path = next(p for p in SHIPPED if independent.not_covered(json.loads(p.read_bytes())["kernel"]))
    found = MATMUL.load(path)
    assert MatmulKernel(found, KernelName.parse(path.stem).spec).audit_files == {}


@pytest.fixture
def disagreement(monkeypatch):
    """The second checker refuses every kernel."""

    def refuse(*_):
        raise independent.Wrong("column 0 is off")

    monkeypatch.setattr(independent, "check", refuse)


@pytest.mark.usefixtures("disagreement")
def test_nothing_is_written_if_the_checkers_disagree(tmp_path, ended):
    folder = tmp_path / "out"
    message = ended(1, "synth", "--isa", "neon", "--act-bits", "2", "--w-bits", "1", "-o", str(folder))[1]
    assert "the two checkers disagree on bs_mm_a2u_w1b" in message
    assert not folder.exists() or not [*folder.iterdir()]


@pytest.mark.slow
@pytest.mark.usefixtures("disagreement")
def test_no_kernel_is_solved_if_the_checkers_disagree():
    from bitsynth.synth import synthesize

    with pytest.raises(Refuted, match="the two checkers disagree"):
        synthesize.synthesize(MatmulSpec.plain("neon", 2, 1), KernelOptions("multiply"))
