"""Products of two edges of codes, as attention has them, run by layers whose weights are packed at run time."""

import base64
import copy
import json
import os

import numpy as np
import pytest
from support.case_selection import HERE
from support.certificate_mutants import is_harmless, mutants
from support.certificates import certified, failure
from support.network_batches import compiled_together

from bitsynth.errors import Refuted, SpecError
from bitsynth.graph import run
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Integers, Reals
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.certificate.checker import column
from bitsynth.network.certificate.rebuild import library_of
from bitsynth.network.certificate.records import CertificateRecord, record_of
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.fusion.cost import layer_cycles, processor_of
from bitsynth.network.lower import lower
from bitsynth.network.program import LayerStep
from bitsynth.network.run import Network

ASKED = int(os.environ.get("BITSYNTH_GRAPHS", "0"))
SIZES = (1, 2, 3, 5, 8, 17, 33, 70)


def quantized(builder, edge, bits, low, zero=0, scale=0.05, high=None):
    """Codes from `low` on, of as many bits."""
    grid = {"low": low, "high": low + (1 << bits) - 1 if high is None else high}
    numbers = {"scale": np.float32(scale), "zero": np.float32(zero)}
    grid |= {"out_scale": np.float64(np.float32(scale)), "out_zero": np.float64(zero)}
    return builder.add("quantize", edge, rounding="ROUND", real="float32", zero_first=False, **numbers, **grid)


def factor(builder, rng, name, shape):
    """Codes of an input, transposed or not, with a zero point or not; and the edge of their numbers."""
    rank, bits, is_signed = len(shape), int(rng.choice([1, 2, 3, 4, 8])), bool(rng.integers(2))
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    order = [tuple(range(rank)), swapped, tuple(rng.permutation(rank))][rng.integers(3)]
    low = -(1 << bits - 1) if is_signed else 0
    zero = int(rng.integers(low, low + (1 << bits))) if rng.integers(3) == 0 else 0
    is_narrow = is_signed and bits > 1 and zero == 0 and rng.integers(4) == 0
    given = [0] * rank
    for axis, size in zip(order, shape, strict=True):
        given[axis] = size
    edge = builder.input(name, tuple(given), "float32", Reals())
    codes = quantized(builder, edge, bits, low + is_narrow, zero, high=low + (1 << bits) - 1)
    return codes if order == tuple(range(rank)) else builder.add("transpose", codes, order=tuple(map(int, order)))


def product(builder, rng, number):
    """A product of matrices of any sizes, one of them perhaps common to several products, and the nodes after it."""
    outer = [(), (1,), (3,), (2, 3), (1, 4)][rng.integers(5)]
    rows, depth, columns = (int(rng.choice(SIZES)) for _ in range(3))
    own = [outer, (1,) * len(outer), ()][rng.choice(3, p=[0.6, 0.2, 0.2])]
    first = factor(builder, rng, f"a{number}", (*outer, rows, depth))
    second = factor(builder, rng, f"b{number}", (*own, depth, columns))
    edge = builder.add("matmul", first, second)
    scale = 0.05 * 0.05 * depth**0.5 * 64
    match ("sums", "codes", "few codes", "bias", "residual")[rng.integers(5)]:
        case "sums":
            return edge
        case "few codes":
            return quantized(builder, edge, 2, -2, scale=scale)
        case "bias":
            edge = builder.add("add", edge, builder.constant(rng.normal(size=columns).astype(np.float32)))
        case "residual":
            more = builder.input(f"r{number}", builder.edges[edge].shape, "float32", Reals())
            edge = builder.add("add", edge, quantized(builder, more, 4, -8, scale=3 * scale))
    edge = quantized(builder, edge, 8, int(rng.choice([-128, 0])), scale=scale / 16)
    order = [(0, 2, 1, 3), (2, 0, 1, 3), (1, 0, 3, 2)][rng.integers(3)]
    return builder.add("transpose", edge, order=order) if len(outer) == 2 and rng.integers(2) else edge


def drawn(seed, count):
    rng, builder = np.random.default_rng(seed), GraphBuilder("products", "exact")
    return builder.build(tuple(product(builder, rng, number) for number in range(count)))


def feeds(graph, rng):
    """Random numbers, the greatest of both signs, and all the greatest and all the least."""
    shapes = {name: graph.edges[name].shape for name in graph.inputs}
    yield {name: rng.normal(0, 2, shape).astype(np.float32) for name, shape in shapes.items()}
    yield {name: rng.choice(np.array([-1e3, 1e3], np.float32), shape) for name, shape in shapes.items()}
    yield from ({name: np.full(shape, x, np.float32) for name, shape in shapes.items()} for x in (-1e3, 1e3))


def network(graph, isa, threads=1, cpu=""):
    net = Network(lower(graph, NetworkTarget(isa, threads, cpu)), threads)
    in_layers = {name for step in net.program.steps if isinstance(step, LayerStep) for name in step.nodes}
    assert {node.name for node in net.graph.nodes if node.op == "matmul"} <= in_layers
    return net


def require_equal(net, rng):
    """Every edge of integers in memory, and every result, is the reference's."""
    graph = net.graph
    for feed in feeds(graph, rng):
        wanted, got = run(graph, feed), net.trace(feed)
        for name, value in got.items():
            if isinstance(graph.edges[name].type, Integers):
                want = wanted.floats(name) if value.dtype.kind == "f" else np.broadcast_to(wanted[name], value.shape)
                np.testing.assert_array_equal(value, want, err_msg=name)


def require_claims(net):
    """The certificate holds, and claims products but for those with a bias along the last of several axes."""
    found = json.loads(json.dumps(net.certificate))
    assert failure({**found, "files": {}}) == ""
    layers = [step for step in found["steps"] if step["kind"] == "layer"]
    reasons = {step["unclaimed"].rpartition(": ")[2] for step in layers if step["unclaimed"]}
    assert all("is of other channels" in why for why in reasons), reasons
    assert any("matrices" in step.get("sums", {}) for step in layers)


def require_products(seed, count, isa, threads=1, cpu=""):
    net = network(drawn(seed, count), isa, threads, cpu)
    compiled_together(isa, [net])
    require_equal(net, np.random.default_rng(seed))
    require_claims(net)


@pytest.mark.parametrize(("isa", "seed", "threads"), [("avx2", 1, 1), ("avx512", 5, 3)])
def test_codes_are_those_of_the_reference(skip_lesser, isa, seed, threads):
    skip_lesser(isa)
    require_products(seed, 6, isa, threads)


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "cpu"), [("avxvnni", ""), ("neon", "a53")])
def test_codes_are_those_of_the_reference_on_other_sets(skip_lesser, isa, cpu):
    skip_lesser(isa)
    require_products(7, 3, isa, cpu=cpu)


@pytest.mark.slow
@pytest.mark.timeout(600 + 60 * ASKED)
def test_many_products():
    for seed in range(20, 21 + ASKED):
        require_products(seed, 6, HERE)


def attention():
    """Heads of queries and keys, the keys transposed, their codes, and values, transposed again."""
    builder = GraphBuilder("attention", "exact")
    edges = [builder.input(name, (1, 3, 2, 4), "float32", Reals()) for name in "qkv"]
    q, k, v = (
        quantized(builder, edge, 3, low, zero) for edge, low, zero in zip(edges, (-4, 0, -4), (0, 2, 0), strict=True)
    )
    heads = [builder.add("transpose", q, order=(0, 2, 1, 3)), builder.add("transpose", k, order=(0, 2, 3, 1))]
    scores = builder.add("matmul", *heads, name="scores")
    shares = quantized(builder, builder.add("mul", scores, builder.constant(np.float32(0.5))), 2, 0, scale=0.01)
    result = builder.add("matmul", shares, builder.add("transpose", v, order=(0, 2, 1, 3)), name="values")
    return builder.build((builder.add("transpose", result, order=(0, 2, 1, 3), name="y"),))


@pytest.fixture(scope="module")
def found():
    return certified(attention())


def products_of(found):
    return [k for k, step in enumerate(found["steps"]) if "matrices" in step.get("sums", {})]


def test_products_of_edges_take_transpositions_along(found):
    """Two steps compute all but the quantizers; they claim their results, and no step transposes."""
    steps = [found["steps"][k] for k in products_of(found)]
    assert [step["claims"][0]["by"] in ("thresholds", "rescale", "lines") for step in steps] == [True, False]
    assert [step["sums"]["matrices"] for step in steps] == [[2, 3, 4, 3], [2, 3, 3, 4]]
    assert sum(operator == "transpose" for step in steps for _, operator in step["nodes"]) == 4
    assert failure(found) == ""


CHANGES = {
    "a longer sum": lambda step, _: step["sums"]["matrices"].__setitem__(2, 5),
    "a shorter sum": lambda step, _: step["sums"]["matrices"].__setitem__(2, 2),
    "more products": lambda step, _: step["sums"]["matrices"].__setitem__(0, 4),
    "a sum along rows": lambda step, _: step["sums"].update(matrices=[2, 4, 3, 3]),
    "no sizes": lambda step, _: step["sums"].pop("matrices"),
    "another zero point of rows": lambda step, _: step["sums"]["reads"][0].__setitem__(1, -3),
    "another zero point of columns": lambda step, _: step["sums"]["reads"][1].__setitem__(1, 0),
    "codes farther apart": lambda step, _: step["sums"]["reads"][1].__setitem__(0, 2),
    "one factor": lambda step, _: step["inputs"].pop(),
    "the same factor twice": lambda step, _: step.update(inputs=[step["inputs"][0]] * 2),
    "factors exchanged": lambda step, _: step.update(inputs=step["inputs"][::-1]),
    "a bias": lambda step, _: step["sums"].update(bias=7),
    "a second factor of fewer integers": lambda _, edge: edge.update(high=6),
    "a second factor of another scale": lambda _, edge: edge.update(scale=3),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_false_claim_of_a_product_of_edges_is_refused(found, what):
    forged = copy.deepcopy(found)
    step = forged["steps"][products_of(forged)[what == "a second factor of another scale"]]
    CHANGES[what](step, forged["edges"][forged["buffers"][step["inputs"][-1]]["edge"]])
    assert failure(forged), what


def test_mutants_of_sums_of_edges_are_refused(found):
    """But where the range of sums is left out, which is computed again."""
    read = {**found, "steps": [{k: x for k, x in step.items() if k != "c"} for step in found["steps"]]}
    prefixes = tuple(f"steps/{k}/{part}" for k in products_of(found) for part in ("sums", "claims", "inputs"))
    chosen = [(word, mutant) for word, mutant in mutants(read) if word.startswith(prefixes)]
    assert len(chosen) > 60
    assert [word for word, mutant in chosen if not failure(mutant) and not is_harmless(word)] == []


def one_product(first, second):
    """A product of matrices of these shapes, its codes, and the step that computes them."""
    builder = GraphBuilder("product", "exact")
    edges = [builder.input(name, shape, "float32", Reals()) for name, shape in zip("ab", (first, second), strict=True)]
    result = builder.add("matmul", *(quantized(builder, edge, 3, -4) for edge in edges))
    found = certified(builder.build((quantized(builder, result, 4, -8, scale=0.1),)))
    assert failure(found) == ""
    return found, found["steps"][products_of(found)[0]]


def test_smaller_matrices_in_the_same_elements_are_refused():
    """Eight products with sums of 4 would have as many elements and results as two with sums of 8."""
    found, step = one_product((2, 4, 8), (2, 8, 4))
    assert step["sums"]["matrices"] == [2, 4, 8, 4]
    for sizes in ([8, 2, 4, 2], [4, 2, 4, 4], [32, 1, 8, 1]):
        step["sums"] = {key: x for key, x in step["sums"].items() if key not in ("low", "high")} | {"matrices": sizes}
        assert "matrices" in failure(found), sizes


def test_numbers_for_each_of_the_sums_factors_are_refused():
    """A claim has a row for all columns, or one for each of 5; the 3 elements along which sums are have none."""
    found, step = one_product((2, 3), (3, 5))
    for count in (5, 3):
        for key in ("factor", "scale", "bias"):
            numbers = np.repeat(column(step["claims"][0][key])[:1].astype(np.float32), count, axis=0)
            data = base64.b64encode(numbers.tobytes()).decode()
            step["claims"][0][key] = {"type": "<f4", "shape": [count, 1], "data": data}
        assert bool(failure(found)) == (count == 3)


PLACES = {
    "rows that lie behind the buffer": (0, "rows", -2, 1 << 20),
    "columns that lie behind the buffer": (0, "columns", -2, 1 << 20),
    "columns before the buffer": (0, "columns", -1, -1),
    "results behind the buffer": (1, "results", -1, 1 << 20),
}


@pytest.fixture(scope="module")
def written():
    return json.loads(json.dumps(Network(lower(attention(), NetworkTarget("avx2"))).certificate))


@pytest.mark.parametrize("what", PLACES)
def test_factors_that_lie_elsewhere_are_refused(written, what):
    number, side, axis, stride = PLACES[what]
    forged = copy.deepcopy(written)
    forged["steps"][products_of(forged)[number]]["c"]["places"][side][axis] = stride
    with pytest.raises((AssertionError, SpecError, Refuted), match=r"reads or writes behind|in no known places"):
        library_of(record_of(forged, CertificateRecord), "network", {})


@pytest.mark.parametrize("wrong", ["abc", 5, None, [[1]]], ids=str)
@pytest.mark.parametrize("side", ["outer", "rows", "columns", "results"])
def test_factors_at_no_places_are_refused(written, side, wrong):
    forged = copy.deepcopy(written)
    forged["steps"][products_of(forged)[0]]["c"]["places"][side] = wrong
    with pytest.raises((AssertionError, SpecError, Refuted)):
        library_of(record_of(forged, CertificateRecord), "network", {})


def test_a_product_of_an_edge_with_itself():
    """Both factors are one edge, the second one transposed."""
    builder = GraphBuilder("square", "exact")
    edge = quantized(builder, builder.input("m", (2, 5, 7), "float32", Reals()), 4, -8)
    result = builder.add("matmul", edge, builder.add("transpose", edge, order=(0, 2, 1)))
    net = network(builder.build((result,)), HERE)
    compiled_together(HERE, [net])
    require_equal(net, np.random.default_rng(0))


def test_rows_of_a_layer_are_heads_without_a_step():
    """A reshape of codes that lie in order is another name of their memory, in whatever layouts both are."""
    builder, rng = GraphBuilder("heads", "exact"), np.random.default_rng(4)
    rows = quantized(builder, builder.input("x", (6, 8), "float32", Reals()), 4, -8)
    weights = builder.constant(rng.integers(-3, 4, (8, 8)).astype(np.float32))
    codes = quantized(builder, builder.add("matmul", rows, weights), 4, -8, scale=0.5)
    heads = builder.add("reshape", codes, sizes=(1, 6, 2, 4), name="heads")
    both = [builder.add("transpose", heads, order=order) for order in ((0, 2, 1, 3), (0, 2, 3, 1))]
    net = network(builder.build((builder.add("matmul", *both),)), HERE)
    assert "heads" not in {name for step in net.program.steps for name in step.nodes}
    assert net.program.buffers["heads"].alias
    compiled_together(HERE, [net])
    require_equal(net, rng)
    require_claims(net)


def test_cycles_of_a_layer_have_those_of_packing_its_weights():
    builder, target = GraphBuilder("product", "exact"), NetworkTarget("avx2")
    factors = (quantized(builder, builder.input(name, (3, 20, 20), "float32", Reals()), 4, 0) for name in "ab")
    (step,) = (
        s for s in lower(builder.build((builder.add("matmul", *factors),)), target).steps if isinstance(s, LayerStep)
    )
    layer = step.layer
    zeros = np.zeros(layer.plan.spec.geometry.weight_shape, np.uint8)
    constant = PackedLayer(layer.plan, zeros, layer.epilogue, layer.bias)
    packed, given = (layer_cycles(some, 3, processor_of(target)) for some in (constant, layer))
    assert packed + 3 * 20 * 20 / 16 < given < 4 * packed
