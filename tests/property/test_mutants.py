"""No kernel with one thing changed survives: it is refused, or it is right and we say why."""

from collections import Counter

import kernel_mutants
import numpy as np
import pytest

from bitsynth import cache, paths, simulate
from bitsynth.errors import Refuted, SpecError

KERNELS = sorted(paths.shipped_kernels().glob("*/*.json"))
QUICK = [p for p in KERNELS if any(f"_{widths}_" in p.stem for widths in ("a1u_w1b", "a2u_w1b", "a2u_w2b", "a3u_w3b"))]
SEED = 2020
PER_KIND = 3

COMMUTING = {"and", "xor", "or", "eor", "orr", "add", "addp", "mul", "mullo", "mullo32", "umlal", "umlsl"}
COMMUTING |= {f"{name}2" for name in ("umlal", "umlsl")}

ACCEPTED = {
    "swap": "the operation commutes",
    "accs": "accumulators do not depend on each other, so their order is free",
    "bits_per_byte": "half as many positions in a byte: the same sums in twice the steps, no bound exceeded",
    "plane": "a code on which this plane may be either: the sums are equal on all rows of the truth table",
    "form": "the same lanes under another sign, or a sign that the bounds rule out",
    "operand": "the two values are equal",
    "flush": "the period before was shorter than it had to be",
}
"""Kinds of mutants that may be right, and why; each such mutant is also run on the whole search."""

REFUSED = {
    "swap: sad_epu8": "|a - b| is |b - a|, but the checker takes only the order that subtracts a constant",
    "flush: ": "counts that exclude each other are bounded one by one, so a period a little longer may be right",
    "memory: load": "the same bytes in lanes of another width; the checker wants lanes as wide as the layout's",
    "form: add": "no byte overflows, so an addition of wider lanes carries nothing; the checker does not track it",
    "form: sub": "no byte overflows, so a subtraction of wider lanes borrows nothing; the checker does not track it",
}
"""Mutants that seem right although the checker refuses them: it need not know every identity."""


@pytest.fixture(scope="module")
def totals(request):
    """What became of the mutants, printed when the last one is done."""
    counts = Counter()
    yield counts
    lines = [f"mutants: {isa}: {n} {verdict}" for (isa, verdict), n in sorted(counts.items())]
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *lines, sep="\n")


def outcome(mutant):
    """A verdict, and the message or counterexample behind it."""
    try:
        simulate.explain(mutant)
    except SpecError as why:
        return "malformed", str(why)
    except Refuted as why:
        text = str(why)
        for mark, verdict in (("counterexample: K", "refuted"), ("cannot be run", "unrunnable")):
            if mark in text:
                return verdict, text
        return "refused", text
    return "accepted", ""


def reason(label, verdict):
    """Why a mutant that is not refuted is no survivor; KeyError if nobody knows."""
    kind, _, what = label.partition(": ")
    op = what.partition(" = ")[2].partition(".")[0]
    if verdict == "refused":
        return REFUSED[f"{kind}: {op}"]
    if kind == "swap":
        assert op in COMMUTING, label
    if kind == "accs":
        assert what == "reversed", label
    return ACCEPTED[kind]


def judge(kernel, mutants, totals, *, thorough):
    for label, mutant in mutants:
        verdict, text = outcome(mutant)
        if verdict in ("accepted", "refused"):
            assert reason(label, verdict)
        if verdict == "accepted":
            wrong = simulate.counterexample(mutant, thorough=thorough)
            assert wrong is None, f"{label} is accepted, but {wrong}"
            verdict = f"equivalent ({label.split(':')[0]})"
        else:
            assert text, label
        totals[kernel.isa, verdict] += 1


@pytest.mark.parametrize("path", QUICK, ids=lambda p: p.stem)
def test_no_mutant_survives(path, totals):
    kernel = cache.read_entry(path).kernel
    judge(kernel, kernel_mutants.sample(kernel, PER_KIND, SEED), totals, thorough=False)


@pytest.mark.slow
@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_no_mutant_of_many_survives(path, totals):
    kernel = cache.read_entry(path).kernel
    judge(kernel, kernel_mutants.sample(kernel, 3, SEED + 1), totals, thorough=True)


@pytest.mark.parametrize("isa", sorted({p.parent.name for p in KERNELS}))
def test_there_are_hundreds(isa):
    chosen = [kernel_mutants.sample(cache.read_entry(p).kernel, PER_KIND, SEED) for p in QUICK if p.parent.name == isa]
    assert sum(map(len, chosen)) >= 150


def test_mutants_are_the_same_on_every_run():
    kernel = cache.read_entry(KERNELS[0]).kernel
    assert kernel_mutants.sample(kernel, 2, 1) == kernel_mutants.sample(kernel, 2, 1)


@pytest.mark.parametrize("path", KERNELS[::5], ids=lambda p: p.stem)
def test_kernels_are_right_in_simulation(path):
    assert simulate.counterexample(cache.read_entry(path).kernel, thorough=False) is None


def test_a_counterexample_says_all_that_is_needed():
    path = next(p for p in KERNELS if "a2u_w2b_s32_neon" in p.stem)
    kernel = cache.read_entry(path).kernel
    mutant = kernel_mutants.replaced(kernel, 0, flush_every=kernel.passes[0].flush_every * 2)
    with pytest.raises(
        Refuted, match=r"(?s)flush .*\ncounterexample: K = \d+, act code . at .* gives .*, want "
    ) as why:
        simulate.explain(mutant)
    found = simulate.counterexample(mutant)
    assert str(found) in str(why.value)
    again = simulate.product(mutant, found.act[None], found.wgt)[0, found.column]
    right = found.act.astype(int) @ (2 * found.wgt[:, found.column].astype(int) - 3)
    assert (again, right) == (found.got, found.want)
    assert again != right


def test_simulated_sums_wrap_like_int32():
    kernel = cache.read_entry(KERNELS[0]).kernel
    act, wgt = np.ones((1, 7), np.uint8), np.ones((7, 1), np.uint8)
    assert simulate.product(kernel, act, wgt).dtype == np.int32
