"""No kernel with one thing changed survives: it is refused, or it is right and we say why."""

import re
from collections import Counter
from functools import partial

import msgspec
import numpy as np
import pytest
from support import kernel_mutants
from support.case_selection import quick
from support.programs import change
from support.solved_kernels import REPRESENTATIVE, kernel, name

from bitsynth import paths
from bitsynth.errors import Refuted, SpecError
from bitsynth.kernel import interpreter
from bitsynth.proof import checker, counterexample
from bitsynth.schedule.flush import with_trip_count
from bitsynth.store.matmul import MATMUL

SHIPPED = sorted(paths.shipped_kernels().glob("*/*.json"))
SEED = 2020
PER_KIND = 1
QUICK = [
    ("avx2", "popcount", 2, 1),
    ("avx2", "lookup", 2, 2),
    ("avx2", "multiply", 2, 2),
    ("neon", "multiply", 2, 2),
    ("neon", "lookup", 2, 1),
    ("neon_dotprod", "dot", 3, 1),
]

COMMUTING = {"and", "xor", "or", "eor", "orr", "add", "addp", "padd", "mul", "mullo", "mullo32", "umull", "umull2"}
COMMUTING |= {
    "adds",
    "umlal",
    "umlal2",
    "umlsl",
    "umlsl2",
    "mla",
    "maddubs",
    "madd",
    "dpbusd",
    "dpwssd",
    "udot",
    "adalp",
}

ACCEPTED = {
    "swap": "the operation commutes, or does on operands as small as these",
    "accs": "accumulators do not depend on each other, so their order is free",
    "rows": "more rows or fewer are the same programs on other inputs",
    "unroll": "the same program, written out more often",
    "bit_axis": "the same inputs from elsewhere in memory",
    "first": "without a program of its own the first run is a run of the step from zero",
    "times": "a shorter period, or one that was shorter than it had to be",
    "type": "the same lanes under another sign",
    "rows stride": "a column of one byte has no second byte that lies further on",
    "columns stride": "a column of one byte has no second byte that lies further on",
    "stage": "a staged code that nothing looks up",
    "build constant": "an index of an entry behind the last, or of another place with the same sum",
    "memory": "the same bytes in lanes of another width",
    "build load": "the same bytes in lanes of another width",
    "build store": "the same bytes in lanes of another width",
    "slot_bytes": "no input has a second byte",
    "pass": "sums do not depend on the order of passes",
    "rows tables": "a code on which this plane may be either: the sums are equal on all rows of the truth table",
    "columns tables": "a code on which this plane may be either: the sums are equal on all rows of the truth table",
    "form": "the same lanes under another sign, or a sign that the bounds rule out",
    "operand": "the two values are equal",
    "immediate": "the lanes it would bring elsewhere are zero",
}
"""Kinds of mutants that may be right, and why; each such mutant is also run on the whole search."""

REFUSED = {
    "swap: sad_epu8": "|a - b| is |b - a|, but the checker takes only the order that subtracts a constant",
    "times": "sums that exclude each other are bounded one by one, so a period a little longer may be right",
    "memory": "the same bytes in lanes of another width, which the checker cannot always see to be the same",
    "build load": "the same bytes in lanes of another width, which the checker cannot always see to be the same",
    "build store": "the same bytes in lanes of another width, which the checker cannot always see to be the same",
    "type": "accumulators of lanes of another width hold the same bytes; the checker wants the lanes they grow in",
    "form: add": "no lane overflows, so an addition of wider lanes carries nothing; the checker does not track it",
    "form: sub": "no lane overflows, so a subtraction of wider lanes borrows nothing; the checker does not track it",
}
"""Mutants that seem right although the checker refuses them: it need not know every identity."""


@pytest.fixture(scope="module")
def totals(request):
    """What became of the mutants, printed when the last one is done."""
    counts: Counter[tuple[str, str]] = Counter()
    yield counts
    lines = [f"mutants: {isa}: {n} {verdict}" for (isa, verdict), n in sorted(counts.items())]
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *lines, sep="\n")


def outcome(mutant, wrong):
    """A verdict, and the message or counterexample behind it, where `wrong` searches for one."""
    try:
        checker.check(mutant)
    except SpecError as why:
        return "malformed", str(why)
    except Refuted as why:
        try:
            found = wrong(mutant)
        except SpecError as unrunnable:
            return "unrunnable", str(unrunnable)
        return ("refused", str(why)) if found is None else ("refuted", str(found))
    return "accepted", ""


def reason(label, verdict):
    """Why a mutant that is not refuted is no survivor; KeyError if nobody knows."""
    whole, _, what = label.partition(": ")
    kind = whole.partition(" in ")[0]
    op = what.partition(" = ")[2].partition(".")[0]
    if verdict == "refused":
        return REFUSED.get(f"{kind}: {op}") or REFUSED.get(kind, "no counterexample was found, and no proof")
    if kind == "swap":
        assert op in COMMUTING, label
    if kind == "accs":
        assert what == "reversed", label
    if kind == "first":
        assert what == "none", label
    if kind == "pass":
        assert what == "reversed", label
    return ACCEPTED[kind]


def judge(kernel, mutants, totals, *, thorough):
    unknown, wrong = [], partial(counterexample.counterexample, thorough=thorough)
    for label, mutant in mutants:
        verdict, text = outcome(mutant, wrong)
        if verdict == "accepted":
            found = wrong(mutant)
            assert found is None, f"{label} is accepted, but {found}"
        else:
            assert text, label
        if verdict in ("accepted", "refused"):
            try:
                assert reason(label, verdict)
            except (KeyError, AssertionError):
                unknown.append((verdict, label))
            verdict = f"{verdict} ({re.split(' in |:', label)[0]})"
        totals[kernel.isa, verdict] += 1
    assert not unknown


@pytest.mark.parametrize("config", quick(QUICK[2:3], of=QUICK), ids=name)
def test_no_mutant_survives(config, totals):
    found = kernel(*config)
    judge(found, kernel_mutants.sample(found, PER_KIND, SEED), totals, thorough=False)


@pytest.mark.slow
@pytest.mark.parametrize("config", [c for c in REPRESENTATIVE if c not in QUICK][::5], ids=name)
def test_no_mutant_of_many_survives(config, totals):
    found = kernel(*config)
    judge(found, kernel_mutants.sample(found, 1, SEED + 1), totals, thorough=found.columns <= 16)


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED[::96], ids=lambda p: p.stem)
def test_no_mutant_of_a_shipped_kernel_survives(path, totals):
    found = MATMUL.read(path).kernel
    judge(found, kernel_mutants.sample(found, 1, SEED + 2), totals, thorough=False)


def test_no_mutant_of_a_last_row_survives(totals):
    (path,) = (paths.shipped_kernels() / "neon" / "a53").glob("bs_mm_a1u_w1b_*.json")
    found = MATMUL.read(path).kernel
    judge(found, list(kernel_mutants.of_last_row(found))[::2999], totals, thorough=False)


def test_there_are_hundreds():
    assert sum(len(kernel_mutants.sample(kernel(*config), PER_KIND, SEED)) for config in QUICK) >= 300


LOOKUP = ("avx2", "lookup", 2, 2)
PLACES = ("build", "first", "step", "widening", "flush")
EVERY_FIELD = {
    *("swapped", "act_bits", "w_bits", "rows", "columns", "k_step", "slot_bytes", "slots", "memory", "constant"),
    *("row_terms", "column_terms", "terms", "build", "build constant", "stage", "build load", "build store"),
    *("build table", "tile", "pass", "times", "next", "start", "type", "accs", "first", "loops", "rows values"),
    *("rows first", "rows bits", "columns tables", "columns first", "columns stride", "columns per_byte"),
    *(f"{kind} in {place}" for kind in ("form", "operand", "swap", "drop", "bypass") for place in PLACES),
}


def test_every_field_is_changed():
    kinds = {label.split(":")[0] for label, _ in kernel_mutants.mutants(kernel(*LOOKUP))}
    assert kinds >= EVERY_FIELD


def test_mutants_are_the_same_on_every_run():
    found = kernel(*LOOKUP)
    assert kernel_mutants.sample(found, 2, 1) == kernel_mutants.sample(found, 2, 1)


@pytest.mark.parametrize("config", quick(REPRESENTATIVE[::2], of=REPRESENTATIVE), ids=name)
def test_kernels_are_right_when_interpreted(config):
    assert counterexample.counterexample(kernel(*config), thorough=False) is None


@pytest.mark.slow
@pytest.mark.parametrize("config", REPRESENTATIVE[1::4], ids=name)
def test_kernels_are_right_in_the_whole_search(config):
    assert counterexample.counterexample(kernel(*config)) is None


@pytest.mark.parametrize("path", quick(SHIPPED[::24], of=SHIPPED[::4]), ids=lambda p: p.stem)
def test_shipped_kernels_are_right_when_interpreted(path):
    assert counterexample.counterexample(MATMUL.read(path).kernel, thorough=False) is None


@pytest.mark.parametrize("config", quick([LOOKUP], of=[("neon", "popcount", 2, 2), LOOKUP]), ids=name)
def test_a_counterexample_says_all_that_is_needed(config):
    found = kernel(*config)
    loop = found.passes[0]
    longer = tuple(with_trip_count(p, 0, 2 * p.step.trip_count) for p in found.passes)
    mutant = msgspec.structs.replace(found, passes=longer)
    of_row, of_column = ("wgt", "act") if found.swapped else ("act", "wgt")
    after = "flush" if len(loop.loops) == 1 else "loop 1"
    with pytest.raises(Refuted, match=f"{after} "):
        checker.check(mutant)
    evidence = counterexample.evidence(mutant)
    assert re.match(rf"counterexample: K = \d+, {of_row} code . at .*{of_column} .* gives .*, want ", evidence)
    wrong = counterexample.counterexample(mutant)
    assert str(wrong) == evidence
    again = interpreter.product(mutant, wrong.row[None], wrong.tile)[0, wrong.column]
    row, column = wrong.row.astype(int), wrong.tile[:, wrong.column].astype(int)
    right = (2 * row - 3) @ column if found.swapped else row @ (2 * column - 3)
    assert (again, right) == (wrong.got, wrong.want)
    assert again != right


@pytest.mark.slow
def test_columns_that_change_places_at_the_end_of_a_period():
    """Where tiles start alike, only what differs between columns and outlasts a period shows it."""
    found = kernel("neon", "lookup", 2, 1)
    assert not any(found.column_terms)
    other = {"c0": "c1", "c1": "c0"}
    loop = found.passes[0]
    flush = (change(s, args=tuple(other.get(a, a) for a in s.args)) for s in loop.flush)
    mutant = kernel_mutants.replaced(found, 0, flush=tuple(flush))
    wrong = counterexample.counterexample(mutant)
    assert wrong is not None
    assert wrong.k > loop.flush_every * found.k_step


def test_interpreted_sums_wrap_like_int32():
    rows, columns = np.ones((1, 7), np.uint8), np.ones((7, 1), np.uint8)
    assert interpreter.product(kernel(*LOOKUP), rows, columns).dtype == np.int32


def one_by_one(found, rows, columns):
    """The same product with the runs of every loop done one after the other."""
    from bitsynth.kernel import interpreter

    before, interpreter.CHUNK = interpreter.CHUNK, 1
    try:
        return interpreter.product(found, rows, columns)
    finally:
        interpreter.CHUNK = before


@pytest.mark.parametrize("config", QUICK, ids=name)
@pytest.mark.parametrize("times", quick([(3, 2)], of=[(3, 2), (1, 5), (4, 1)]), ids=str)
def test_runs_side_by_side_are_runs_one_after_the_other(config, times):
    """With loops so short that K passes many of their ends."""
    found = kernel(*config)
    for index, loop in enumerate(found.passes):
        short = loop
        for level in range(len(loop.loops)):
            short = with_trip_count(short, level, times[level])
        found = kernel_mutants.with_pass(found, index, short)
    rng = np.random.default_rng(1)
    for k in (1, 5 * found.k_step - 1, 9 * found.k_step + 1):
        rows = rng.integers(0, 1 << found.row_bits, (2, k), dtype=np.uint8)
        columns = rng.integers(0, 1 << found.column_bits, (k, found.columns + 1), dtype=np.uint8)
        got = interpreter.product(found, rows, columns)
        assert (got == one_by_one(found, rows, columns)).all()
        assert (got == interpreter.compute_wanted_sums(found, rows, columns)).all()
