"""False claims that are refused: floats that are infinite or nan, large sums, and memory that holds no element."""

import copy
import json
from fractions import Fraction

import numpy as np
import pytest
from support.certificate_networks import zoo
from support.certificates import certified, encode_json_array, failure
from support.onnx_files import QONNX, model, node

from bitsynth.graph import read
from bitsynth.network.certificate import checker
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.run import Network

FLOATS, EXACT = False, True


def constant(value, dtype=np.float32):
    """One number for all channels."""
    return encode_json_array(np.array([[value]], dtype))


def edge(low, high):
    """Integers from `low` to `high`, on scale 1."""
    return {"shape": [1, 4], "type": "int32", "low": low, "high": high, "scale": 1, "zero": 0}


def chain(text):
    """Operations, each written as "result operation operand operand"."""
    rows = [row.split() for row in text.split(", ")]
    return [{"op": op, "of": of, "is": name} for name, op, *of in rows]


def always(code):
    """A formula that gives one code for every sum."""
    numbers = {"scale": constant(1), "bias": constant(0), "zero": 0, "low": code, "high": code}
    return {"by": "rescale", **numbers, "factor": 0, "of_zero": 0}


THE_SUM = {"by": "sums", "factor": 0, "of_zero": 0}
LINE = {"by": "lines", "values": [[-100, 100, 1 << checker.FIXED_SHIFT, 0]], "factor": 5, "of_zero": 0}
BIG = ", ".join(["c1 add big big", *(f"c{k + 1} add c{k} c{k}" for k in range(1, 30))])
PLACES = {"edge": {"shape": [1, 4], "type": "float32", "low": 0, "high": 1 << 25}, "sums": {"places": "float32"}}
AT_END = float(checker.places_to_floats(np.array([[1 << 25]]))[0, 0])
CASES = {
    "a sign by division by 0": (
        "v div sum zero0, w max v zero0, x min w one, y mul x two, z sub y one, f mul sum z",
        {"one": constant(1), "two": constant(2)},
        always(5),
        ((-5, 5), (5, 5), FLOATS, {}),
    ),
    "0 times infinity": (
        "inf mul big big, v mul sum inf, w min v one, x max w one, f count x one",
        {"one": constant(1), "big": constant(1e30)},
        always(1),
        ((-5, 5), (1, 1), FLOATS, {}),
    ),
    "sums of whole numbers that are rounded": (
        f"{BIG}, v add sum c30, f sub v c30",
        {"big": constant(2**30)},
        THE_SUM,
        ((0, 1024), (0, 1024), FLOATS, {}),
    ),
    "a second tensor of large integers": (
        "v add sum other, f sub v other",
        {},
        THE_SUM,
        ((0, 8), (0, 8), FLOATS, {"other": edge(2**53 - 8, 2**53 - 8)}),
    ),
    "places of floats as their numbers": (
        "f mul sum m",
        {"m": constant((1 << 25) / AT_END, np.float64)},
        THE_SUM,
        ((0, 1 << 25), (0, 1 << 25), EXACT, PLACES),
    ),
    "an infinite scale": (
        "v mul sum zero0, f add v five",
        {"five": constant(5)},
        {**always(5), "scale": constant(np.inf)},
        ((-5, 5), (5, 5), EXACT, {}),
    ),
    "a line without its second tensor": ("f add sum zero0", {}, LINE, ((0, 5), (0, 5), EXACT, {"other": edge(0, 3)})),
}


@pytest.mark.parametrize("case", CASES)
def test_a_formula_that_is_not_the_chain_is_refused(case):
    ops, constants, claim, ((low, high), (least, most), exact, more) = CASES[case]
    edges = [more.get("edge", edge(low, high)), *([more["other"]] if "other" in more else []), edge(least, most)]
    step = {"inputs": ["x", "other"][: len(edges) - 1], "outputs": ["y"], "chain": chain(ops), "constants": constants}
    step |= {"claims": [{**claim, "is": "f"}], "sums": {"bias": 0, **more.get("sums", {})}}
    with pytest.raises(AssertionError, match=r"chain and C.s formula differ|not finite|places are for"):
        checker.prove(step, [{"operand": [1, 0], "role": "arena", "type": "int32"}] * len(edges), edges, exact)


@pytest.mark.parametrize("key", ["scale", "zero"])
def test_scales_of_columns_are_none_of_channels(key):
    """As numbers of channels they would prove a chain that multiplies each channel, where elements differ by column."""
    by_column = {**edge(0, 3), "shape": [1, 2, 2], key: encode_json_array(np.array([[[1.0, 2.0]]]))}
    step = {"inputs": ["x"], "outputs": ["y"], "chain": chain("f mul sum scale0, g sub f zero0"), "constants": {}}
    step |= {"claims": [{**THE_SUM, "is": "g"}], "sums": {"bias": 0}}
    buffers = [{"operand": [1, 0], "role": "arena", "type": "int32"}] * 2
    with pytest.raises(AssertionError, match="differ along other axes than channels"):
        checker.prove(step, buffers, [by_column, by_column], EXACT)


@pytest.fixture(scope="module")
def found():
    return certified(zoo(np.random.default_rng(15)))


def test_buffers_without_elements_hide_no_overlap(found):
    """Each of the two is in no memory, so that as few pairs overlap as there are buffers."""
    forged = copy.deepcopy(found)
    buffers, place = forged["buffers"], len(forged["steps"])
    buffers["zoo.quantize_1"]["offset"] = buffers["zoo.quantize"]["offset"]
    source = forged["steps"][-1]["inputs"][0]
    buffers[source]["life"][1] = place
    ends = {"low": -(1 << 31), "high": (1 << 31) - 1}
    form = {"type": "int32", "bits": 32, "operand": [1, 0], "holds": [*ends.values()], "layout": "plain", "bytes": 0}
    for name in ("empty", "none"):
        forged["edges"][name] = {**forged["edges"][buffers[source]["edge"]], **ends, "shape": [1, 0]}
        buffers[name] = {**buffers[source], **form, "edge": name, "life": [place, place], "offset": 0}
    claim = {**THE_SUM, "is": "sum"}
    step = {"inputs": [source], "outputs": ["empty", "none"], "claims": [claim, claim], "kernels": [], "kind": "plain"}
    forged["steps"].append({**step, "chain": [], "constants": {}, "unclaimed": "", "sums": {"bias": 0}})
    assert "lie in the same memory" in failure(forged)


def test_an_output_has_memory_of_its_own(found):
    forged = copy.deepcopy(found)
    forged["buffers"]["o"] = {**forged["buffers"]["zoo.quantize_1"], "alias": "zoo.quantize_1", "role": "output"}
    forged["outputs"].append("o")
    assert "in memory of another" in failure(forged)


def test_a_conversion_reads_something(found):
    forged = copy.deepcopy(found)
    for name in ("o", "p"):
        forged["buffers"][name] = {**forged["buffers"]["y"], "life": [len(forged["steps"])] * 2}
        forged["outputs"].append(name)
    step = {"inputs": [], "outputs": ["o", "p"], "claims": [{"by": "conversion", "is": "sum"}], "sums": {"bias": 0}}
    forged["steps"].append({**step, "chain": [], "constants": {}, "kernels": [], "kind": "plain", "unclaimed": ""})
    assert "a conversion is of one edge" in failure(forged)


def test_unsigned_bytes_hold_nothing_below_0(found):
    forged = copy.deepcopy(found)
    forged["buffers"]["zoo.quantize_1"]["holds"] = [-1, 254]
    assert "holds more than its bits" in failure(forged)


def test_weights_are_whole(found):
    forged = copy.deepcopy(found)
    sums = forged["steps"][1]["sums"]
    sums["weights"] = encode_json_array(checker.array(sums["weights"]) / 2.0)
    assert "weights are not whole" in failure(forged)


def test_what_is_not_known_in_fractions_is_not_rounded():
    """The sigmoid of -1000 lies above 0, but nearer than its bound: rounded up it is 0 or 1."""
    ops = chain("v sigmoid sum zero0, w ceil v zero0, f round w zero0")
    result = checker.StepChain(ops, True, {"zero0": np.zeros((1, 1))})
    is_equal, _ = result.agrees(np.array([[-1000.0]]), np.zeros((1, 1)), "f", np.array([[1.0]]))
    assert not is_equal.any()


@pytest.mark.parametrize("step", range(1, 5))
@pytest.mark.parametrize("more", [{"places": "float32"}, {"other": 1}])
def test_sums_say_what_has_a_meaning_alone(found, step, more):
    """Places are for the caller's floats: with places any other integer would become a number near 0."""
    forged = copy.deepcopy(found)
    forged["steps"][step]["sums"].update(more)
    assert failure(forged)


@pytest.mark.parametrize("text", ["*/ static inline int evil(void) { return 0; } /*", "a53\n", "A53", "a-53"])
@pytest.mark.parametrize("key", ["cpu", "isa", "reference"])
def test_what_comments_show_is_a_plain_name(found, key, text):
    assert "which is no name" in failure({**found, key: text})


@pytest.mark.parametrize("change", [{"threads": 0}, {"threads": -1}, {"arena": {"bytes": 1 << 62, "bound": 0}}])
def test_numbers_of_a_library_are_possible(found, change):
    assert failure({**found, **change})


@pytest.mark.parametrize("kind", ["int8", "int32", "bool", "float16"])
def test_results_have_the_type_of_the_file(kind):
    """C would give integers as they are, or cut them, where numbers on a scale are claimed."""
    graph = read(
        model(
            [
                node("Quant", "x s z b", "q", domain=QONNX, signed=1, narrow=0),
                node("MatMul", "q w", "y"),
            ],
            {"x": (1, 4)},
            {"s": np.float32(3), "z": np.float32(0), "b": np.float32(4), "w": np.eye(4, dtype=np.float32)},
        )
    )
    fields = json.loads(json.dumps(Network(lower(graph, NetworkTarget("avx2"))).certificate))
    assert failure(fields) == ""
    (name,) = fields["outputs"]
    forged = copy.deepcopy(fields)
    forged["buffers"][name]["type"] = kind
    assert failure(forged)
    forged["edges"]["y"]["type"] = kind
    assert failure(forged)


def test_numbers_beyond_floats_are_refused():
    """A fraction that is not known exactly, of more digits than floats have, is no chain that is proved."""
    big = np.array([[Fraction(10) ** 200]])
    start = {"sum": (np.array([[Fraction(1, 2)]]), 0.0, Fraction(1, 4)), "big": (big, 0.0, Fraction(0))}
    ops = chain("r round sum, a mul r big, b add a big, c mul b big, f max c big")
    with pytest.raises(AssertionError, match="of a chain is beyond floats"):
        checker.evaluate(ops, start, True)
