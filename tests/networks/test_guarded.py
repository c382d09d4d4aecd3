"""Loops in float64 with a bound of their error: what they decide is what pairs of float64 decide, for any number."""

from dataclasses import replace

import numpy as np
import pytest
from support.plain_cases import codes

import bitsynth.network.lower as lowering
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.reference import run
from bitsynth.graph.types import Integers, Reals
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.plain import elements, guarded
from bitsynth.network.run import Network

SHAPE = (32, 32)
UNDECIDED = 119
"""A code that no quantizer here gives, where the flag is set."""
_GREAT = (1e17, 2.0**51 - 0.5, 2.0**51, 2.0**52 + 1, 2.0**63, 1e160, 1.7e308)
_SMALL = (0.0, 5e-324, 1e-310, 2.0**-1022, 1e-160)
SPECIAL = (*_SMALL, *_GREAT, *(-x for x in (*_SMALL, *_GREAT)), np.inf, -np.inf, np.nan)
DISTANCES = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 1 << 10, 1 << 20, 1 << 40)
"""From the last number of a code, in numbers of float64."""


def norm(b, x, gain, bias, mean=0.3):
    """A batch norm, whose gain over its deviation float64 does not hold."""
    numbers = (gain, bias, mean, 1.7)
    return b.add("batch_norm", x, *(b.constant(np.full((1, 1), n, np.float32)) for n in numbers), epsilon=1e-5)


def times(b, x, *factors):
    for factor in factors:
        x = b.add("mul", x, b.constant(np.float32(factor)))
    return x


def product(b, x, *others):
    for other in others:
        x = b.add("mul", x, other)
    return x


def four_bits(b, x, scale=0.1875, **options):
    return codes(b, x, scale=scale, low=np.asarray(-7), high=np.asarray(8), **options)


def wide_codes(b, x):
    return codes(b, x, scale=0.3, low=np.asarray(-2000), high=np.asarray(2000))


def hard_swish(b, x):
    """A hard swish in elementary operators, with a quantizer inside."""
    gate = codes(b, b.add("clip", b.add("add", x, b.constant(np.float32(3))), low=0.0, high=6.0), bits=8, scale=0.02)
    return four_bits(b, b.add("div", b.add("mul", x, gate), b.constant(np.float32(6))))


CHAINS = {
    "scaled": lambda b, x, y: four_bits(b, times(b, x, 0.3)),
    "normed": lambda b, x, y: four_bits(b, b.add("relu", norm(b, x, 1.4, 0.01))),
    "falling": lambda b, x, y: four_bits(b, norm(b, x, -0.7, 0.3), zero_first=True, zero=1.0),
    "small against its bias": lambda b, x, y: four_bits(b, norm(b, x, 1e-5, 0.2)),
    "leaky": lambda b, x, y: four_bits(b, b.add("leaky_relu", times(b, x, 0.3), alpha=0.1)),
    "residual": lambda b, x, y: four_bits(b, b.add("relu", b.add("add", norm(b, x, 0.9, 0.1), norm(b, y, 0.8, -0.1)))),
    "sum of 6": lambda b, x, y: four_bits(b, b.add("clip", b.add("add", times(b, x, 2.0**60), y), low=-6.0, high=6.0)),
    "sign": lambda b, x, y: codes(b, norm(b, x, 0.9, 0.2), rounding="BIPOLAR", low=np.asarray(-1), high=np.asarray(1)),
    "nine products": lambda b, x, y: four_bits(b, times(b, x, *(0.9,) * 8)),
    "a product of variables": lambda b, x, y: four_bits(b, b.add("mul", x, times(b, y, 0.3))),
    "a square": lambda b, x, y: four_bits(b, b.add("mul", x, x)),
    "a number times codes": lambda b, x, y: four_bits(b, b.add("mul", x, codes(b, y, bits=8, scale=0.1))),
    "a product of codes": lambda b, x, y: four_bits(b, b.add("mul", codes(b, x, bits=8, scale=0.1), wide_codes(b, y))),
    "a hard swish": lambda b, x, y: hard_swish(b, norm(b, codes(b, x, bits=8, scale=0.1), 1.1, 0.05)),
    "codes of codes": lambda b, x, y: four_bits(b, norm(b, codes(b, x, bits=8, scale=0.25, zero=3.0), 1.1, 0.05)),
    "a magnitude": lambda b, x, y: four_bits(b, b.add("sqrt", b.add("add", b.add("mul", x, x), b.add("mul", y, y)))),
    "a root of a product": lambda b, x, y: four_bits(b, b.add("sqrt", times(b, b.add("mul", x, x), 0.3))),
    "a quotient": lambda b, x, y: four_bits(b, b.add("div", x, y)),
    "a function": lambda b, x, y: four_bits(b, b.add("sigmoid", x), scale=0.07),
    "far down and up": lambda b, x, y: four_bits(b, times(b, x, *(3e-19,) * 3, *(3e18,) * 3)),
}


def network(monkeypatch, chains=CHAINS, *, with_pairs=False):
    """Return a network of chains, in pairs or in float64 alone, which gives `UNDECIDED` where the flag is set."""
    monkeypatch.setattr(lowering, "PATTERNS", ())
    if with_pairs:
        monkeypatch.setattr(elements, "_write_guarded", _refuse)
    builder = GraphBuilder("chains", "exact")
    x, y = (builder.input(name, SHAPE, "float64", Reals()) for name in ("x", "y"))
    outputs = tuple(build(builder, x, y) for build in chains.values())
    program = lowering.lower(builder.build(outputs), NetworkTarget("avx2"))
    if not with_pairs:
        program = replace(program, steps=tuple(map(_alone, program.steps)))
    return Network(program)


def _refuse(body, *_):
    raise guarded.Undecidable(body.node.op)


def _alone(step):
    head, test, _ = step.body.partition(f"if (!({guarded.FLAG} >> 63))")
    mark = f"for (size_t i = 0; i < {np.prod(SHAPE)} && {guarded.FLAG} >> 63; ++i) out0[i] = {UNDECIDED};"
    return replace(step, body=head + mark) if test else step


def codes_of(net, x, y):
    """Return the codes of each chain for tensors that begin with the numbers, which are repeated."""
    numbers = {"x": np.resize(x, SHAPE), "y": np.full(SHAPE, y)}
    trace = net.trace(numbers)
    return np.array([trace[name].ravel()[: np.size(x)] for name in net.graph.outputs])


def in_order(x):
    """Return the bits of float64 as integers in the order of the numbers; of these integers, the bits."""
    whole = np.asarray(x).view(np.int64)
    return np.where(whole < 0, np.iinfo(np.int64).min - whole, whole)


def numbers_at(order):
    return in_order(order).view(np.float64)


def last_of_codes(net, y):
    """Return the last numbers before which a chain's code changes, in order, found by bisection."""
    grid = np.linspace(-9, 9, 256)
    result = []
    for chain, codes_there in enumerate(codes_of(net, grid, y)):
        (at,) = np.nonzero(codes_there[1:] != codes_there[:-1])
        low, high = in_order(grid[at]), in_order(grid[at + 1])
        while (high - low > 1).any():
            middle = low + (high - low) // 2
            is_same = codes_of(net, numbers_at(middle), y)[chain] == codes_there[at]
            low, high = np.where(is_same, middle, low), np.where(is_same, high, middle)
        result.append(low)
    return np.concatenate(result)


def compared(net, pairs, y=0.77):
    """Return how many decided codes differ from the codes of pairs, and the share of decided codes by distance."""
    near, wrong, shares = last_of_codes(pairs, y), 0, {}
    cases = {d: np.concatenate([numbers_at(near + d), numbers_at(near - d)]) for d in DISTANCES}
    for distance, numbers in (cases | {"special": np.array(SPECIAL)}).items():
        wanted = codes_of(pairs, numbers, y)
        each = np.concatenate([codes_of(net, np.array([x]), y) for x in numbers], axis=1)
        wrong += int(((each != wanted) & (each != UNDECIDED)).sum())
        shares[distance] = float((each != UNDECIDED).mean())
    return wrong, shares


@pytest.fixture(scope="module")
def pairs():
    with pytest.MonkeyPatch.context() as patch:
        return network(patch, with_pairs=True)


@pytest.mark.slow
@pytest.mark.parametrize("y", [0.77, -1e-3, np.nan, np.inf])
def test_decided_codes_are_those_of_pairs(monkeypatch, pairs, y):
    wrong, shares = compared(network(monkeypatch), pairs, y)
    assert wrong == 0
    if np.isfinite(y):
        assert shares[0] < 0.9
        assert shares[1 << 20] >= 0.9
        assert 0.2 < shares["special"] < 0.6


@pytest.mark.slow
def test_a_bound_without_roundings_decides_wrong_codes(monkeypatch, pairs):
    monkeypatch.setattr(guarded, "_UNIT", 0.0)
    wrong, _ = compared(network(monkeypatch), pairs)
    assert wrong > 0


def test_chains_of_networks_with_powers_are_those_of_pairs(monkeypatch):
    """Numbers may be beyond float64 there: pairs keep their rests finite."""
    chains = CHAINS | {"power": lambda b, x, y: four_bits(b, b.add("exp", x))}
    net = network(monkeypatch, chains)
    with pytest.MonkeyPatch.context() as patch:
        pairs = network(patch, chains, with_pairs=True)
    decided = []
    for x in (*SPECIAL, 1e100, 0.7, -2.1):
        each, wanted = (codes_of(n, np.array([x]), 0.77)[:-1] for n in (net, pairs))
        assert ((each == wanted) | (each == UNDECIDED)).all(), x
        decided.append((each != UNDECIDED).mean())
    assert 0.3 < np.mean(decided) < 0.9
    assert decided[-1] > 0.9


def test_numbers_that_float64_holds_are_decided(monkeypatch):
    """The flag is set for large ones alone, and for what is not a number."""
    chains = {"no roundings": lambda b, x, y: four_bits(b, b.add("relu", x), scale=0.25)}
    net = network(monkeypatch, chains)
    with pytest.MonkeyPatch.context() as patch:
        pairs = network(patch, chains, with_pairs=True)
    for x in (*SPECIAL, 0.125, 0.375, 0.3, -0.625):
        (each, wanted) = (codes_of(n, np.array([x]), 0.0) for n in (net, pairs))
        is_large = not x < 2.0**49
        assert each == wanted or (is_large and each == UNDECIDED), x


def test_roots_of_the_runtime_are_neighbours_of_the_root(monkeypatch):
    """Bounds count on 2 u; numpy's root is rounded once, so that the numbers next to it are within that."""
    net = network(monkeypatch, {"root": lambda b, x, y: b.add("sqrt", x)})
    rng = np.random.default_rng(7)
    x = np.concatenate([2.0 ** rng.uniform(-1022, 1023, 500), rng.uniform(0, 9, 500), [2.0**-1022, 1.7e308, 4.0, 0.0]])
    (got,) = codes_of(net, x, 0.0)
    assert abs(in_order(got) - in_order(np.sqrt(x))).max() <= 1


KINDS = {"x": Integers.between(0, 255, 0.375, 10.0), "y": Integers.between(0, 255, 2.0**-5)}
EVERY_PAIR = {
    name: ((codes - kind.zero) * kind.scale).astype(np.float32)
    for (name, kind), codes in zip(KINDS.items(), np.mgrid[:256, :256], strict=True)
}


def over(b, x, n):
    return b.add("div", x, b.constant(np.float32(n)))


def of_scales(b, x, y):
    """Codes of x * y * 0.49 on a scale of 0.49, by whose reciprocal products are rounded: many are ties."""
    return codes(b, times(b, b.add("mul", x, y), 0.49), bits=8, scale=0.49, zero=-128.0)


def step_of_codes(monkeypatch, chain, shape=(256, 256)):
    """Return a network of codes x and y, and its step."""
    monkeypatch.setattr(lowering, "PATTERNS", ())
    builder = GraphBuilder("codes", "exact")
    x, y = (builder.input(name, shape, "float32", kind) for name, kind in KINDS.items())
    net = Network(lowering.lower(builder.build((chain(builder, x, y),)), NetworkTarget("avx2")))
    (step,) = (step for step in net.program.steps if step.nodes)
    return net, step


OF_CODES = {
    "a product": of_scales,
    "a hard swish": lambda b, x, y: hard_swish(b, times(b, x, 0.1875)),
    "a gate inside": lambda b, x, y: four_bits(b, b.add("mul", x, codes(b, times(b, y, 0.3), bits=8, scale=0.375))),
    "a sum of quotients": lambda b, x, y: four_bits(b, b.add("add", over(b, times(b, x, 3), 49), y), scale=0.25),
    "a quotient, rounded down": lambda b, x, y: four_bits(b, over(b, x, 49), scale=0.125, rounding="FLOOR"),
    "a sign": lambda b, x, y: codes(
        b, b.add("sub", over(b, x, 49), over(b, y, 3)), rounding="BIPOLAR", low=np.asarray(-1), high=np.asarray(1)
    ),
    "a table": lambda b, x, y: b.add(
        "lookup", four_bits(b, over(b, x, 49), scale=0.375, dtype="int8", out_scale=np.float32(1)),
        table=np.arange(16)[::-1], first=-7, dtype="int8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_CODES)
def test_multiples_of_a_unit_need_no_pairs(monkeypatch, name):
    net, step = step_of_codes(monkeypatch, OF_CODES[name])
    assert not step.body.count(guarded.FLAG)
    assert not step.body.count("error")
    (wanted,) = run(net.graph, EVERY_PAIR).outputs()
    assert (net(EVERY_PAIR) == wanted).all()


@pytest.mark.parametrize("name", ["a product", "a quotient, rounded down"])
def test_ties_that_are_not_replaced_give_wrong_codes(monkeypatch, name):
    """The float64 nearest to 1/49 times 49 is below 1."""
    monkeypatch.setattr(guarded.GuardedWriter, "_on_multiples", lambda self, code, near, step: code)
    net, _ = step_of_codes(monkeypatch, OF_CODES[name])
    (wanted,) = run(net.graph, EVERY_PAIR).outputs()
    assert (net(EVERY_PAIR) != wanted).any()


def test_signs_of_a_difference_depend_on_its_unit(monkeypatch):
    monkeypatch.setattr(guarded, "_NEAR_COMPARISONS", dict.fromkeys(guarded._NEAR_COMPARISONS, "{0} > {near}"))
    net, _ = step_of_codes(monkeypatch, OF_CODES["a sign"])
    (wanted,) = run(net.graph, EVERY_PAIR).outputs()
    assert (net(EVERY_PAIR) != wanted).any()


def test_few_codes_and_numbers_after_codes_need_no_pairs(monkeypatch):
    _, step = step_of_codes(monkeypatch, OF_CODES["a product"], (2, 2))
    assert not step.body.count("error")
    _, step = step_of_codes(monkeypatch, lambda b, x, y: b.add("sigmoid", b.add("mul", of_scales(b, x, y), y)))
    assert not step.body.count("error")


def test_units_below_the_error_set_the_flag(monkeypatch):
    _, step = step_of_codes(monkeypatch, lambda b, x, y: of_scales(b, times(b, x, np.pi, 0.3), times(b, y, 0.1)))
    assert step.body.count(guarded.FLAG)


def is_guarded(monkeypatch, chain):
    (step, *_) = network(monkeypatch, {"chain": chain}).program.steps
    return "bs_undecided" in step.body


@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_in_float64(monkeypatch, name):
    assert is_guarded(monkeypatch, CHAINS[name])


LEFT_TO_PAIRS = {
    "a product of eight variables": lambda b, x, y: four_bits(b, product(b, x, y, x, y, x, y, x, y)),
    "a quotient of sums": lambda b, x, y: four_bits(b, b.add("div", b.add("add", x, y), y)),
    "large factors": lambda b, x, y: four_bits(b, times(b, x, 0.3, *(2.0**100,) * 6)),
    "a small divisor": lambda b, x, y: four_bits(b, b.add("div", times(b, x, *[1e38] * 5), b.constant(np.float32(3)))),
    "a root of a difference": lambda b, x, y: four_bits(b, b.add("sqrt", b.add("sub", b.add("mul", x, x), y))),
    "a function of a sum": lambda b, x, y: four_bits(b, b.add("sigmoid", b.add("add", x, y))),
    "a table": lambda b, x, y: b.add(
        "lookup", four_bits(b, times(b, x, 0.3), dtype="int8", out_scale=np.float32(1)),
        table=np.arange(16), first=-7, dtype="int8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_TO_PAIRS)
def test_operations_without_a_bound_are_in_pairs(monkeypatch, name):
    assert not is_guarded(monkeypatch, LEFT_TO_PAIRS[name])


AFTER_OTHERS = {
    "a softmax": lambda b, x, y: four_bits(b, b.add("softmax", x, axes=(1,)), scale=0.01),
    "a sum of codes": lambda b, x, y: four_bits(b, over(b, b.add("reduce_sum", x, axes=(1,)), 49), scale=0.125),
}


@pytest.mark.parametrize("name", AFTER_OTHERS)
def test_codes_after_other_operators_are_in_float64(monkeypatch, name):
    net, step = step_of_codes(monkeypatch, AFTER_OTHERS[name])
    head, test, _ = step.body.partition(f"if (!({guarded.FLAG} >> 63))")
    assert "error" not in head
    assert bool(test) == (name == "a softmax")
    (wanted,) = run(net.graph, EVERY_PAIR).outputs()
    assert (net(EVERY_PAIR) == wanted).all()


NUMBERS_AFTER_CODES = {
    "decided by their unit": lambda b, x, y: b.add("mul", of_scales(b, x, y), b.add("sigmoid", y)),
    "with a flag": lambda b, x, y: b.add("mul", times(b, x, np.pi), four_bits(b, times(b, x, np.pi, 0.3))),
    "after a softmax": lambda b, x, y: b.add("mul", four_bits(b, b.add("softmax", x, axes=(1,)), scale=0.01), y),
}


@pytest.mark.parametrize("name", NUMBERS_AFTER_CODES)
def test_numbers_after_codes_have_the_bits_of_the_loop_over_pairs(monkeypatch, name):
    """Which loop computes a tensor depends on all its elements: the bits of one must not."""
    net, step = step_of_codes(monkeypatch, NUMBERS_AFTER_CODES[name])
    assert "error" not in step.body.partition(f"if (!({guarded.FLAG} >> 63))")[0]
    monkeypatch.setattr(elements, "_write_guarded", _refuse)
    pairs, other = step_of_codes(monkeypatch, NUMBERS_AFTER_CODES[name])
    assert "error" in other.body
    assert (net(EVERY_PAIR).view(np.int32) == pairs(EVERY_PAIR).view(np.int32)).all()
