"""Certificates: what is written holds by the checker, in every reference and for every mode of rounding."""

import copy
import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.certificate_mutants import is_harmless, mutants
from support.certificate_networks import changed, layer, quantized, sliced, tail, zoo
from support.certificates import certified, encode_json_array, failure, reading_of, written
from support.markdown_blocks import ROOT
from support.onnx_files import QONNX, model, node

from bitsynth import compile
from bitsynth.graph import InputCodes
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators.rounding import ROUNDINGS
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Integers, Reals
from bitsynth.layers.glue import AvgPool2d, Lookup, MaxPool2d, Pad2d
from bitsynth.layers.glue.programs import list_called
from bitsynth.network.arena import plan_arena
from bitsynth.network.certificate import certificate, checker
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower


@pytest.mark.parametrize("reference", ["exact", "onnxruntime", "onnx"])
@pytest.mark.parametrize("mode", sorted(ROUNDINGS))
def test_a_layer_is_its_chain_in_every_rounding(rng, reference, mode):
    low, high = (-1, 1) if mode == "BIPOLAR" else (0, 3)
    found = certified(layer(rng, reference, mode=mode, low=low, high=high))
    assert [step["claims"][0]["by"] for step in found["steps"]] == ["thresholds"]
    assert failure(found) == ""


@pytest.fixture(scope="module")
def found():
    return certified(zoo(np.random.default_rng(15)))


def test_floats_layers_tables_and_pools_claim_their_results(found):
    assert failure(found) == ""
    by = [claim["by"] for step in found["steps"] for claim in step["claims"]]
    assert by == ["thresholds", "thresholds", "thresholds", "table", "table", "sums"]


def one_more(array):
    array.flat[0] += 1
    return array


REFUSED = {
    "a threshold above": (1, ("claims", 0, "values"), one_more, "chain and C's formula differ"),
    "a threshold below": (1, ("claims", 0, "values"), lambda x: -one_more(-x), "chain and C's formula differ"),
    "falling": (1, ("claims", 0, "rising"), lambda x: 1 - x, "chain and C's formula differ"),
    "a weight": (1, ("sums", "weights"), one_more, "ranges differ"),
    "the range": (2, ("sums", "low"), one_more, "ranges differ"),
    "the bias": (1, ("sums", "bias"), one_more, "chain and C's formula differ"),
    "a gain": (2, ("constants", "k0"), lambda x: -x, "chain and C's formula differ"),
    "an entry": (3, ("claims", 0, "table"), lambda x: (x + 1) % 8, "chain and C's formula differ"),
    "a chain": (1, ("chain",), lambda ops: ops[:-1], "KeyError"),
    "no chain": (1, ("claims",), lambda _: [], "says nothing of why"),
    "a level of floats": (0, ("claims", 0, "values"), one_more, "chain and C's formula differ"),
    "another value": (1, ("claims", 0, "is"), lambda _: "scale0", "chain and C's formula differ"),
    "codes": (1, ("sums", "reads"), lambda x: [1, x[1] - 1], "codes mean other integers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_step_that_was_changed_is_refused(found, case):
    step, path, value, message = REFUSED[case]
    assert message in failure(changed(found, step=step, path=path, value=value))


def test_no_thresholds_are_code_0(found):
    """Not the sums themselves."""
    forged = copy.deepcopy(found)
    claim = forged["steps"][-1]["claims"][0]
    assert claim["by"] == "sums"
    claim |= {
        "by": "thresholds",
        "values": encode_json_array(np.zeros((3, 0), np.int64)),
        "rising": encode_json_array(np.ones((3, 1), bool)),
    }
    assert "chain and C's formula differ" in failure(forged)


PLANS = {
    "moved": (lambda c: c["buffers"]["zoo.quantize_1"].update(offset=0), "in the same memory"),
    "out of the arena": (lambda c: c["buffers"]["zoo.quantize_1"].update(offset=1 << 20), "outside of the arena"),
    "not aligned": (
        lambda c: c["arena"].update(bytes=1 << 20) or c["buffers"]["zoo.quantize_1"].update(offset=(1 << 18) + 1),
        "outside of the arena",
    ),
    "below it": (lambda c: c["buffers"]["zoo.quantize_1"].update(offset=-64), "outside of the arena"),
    "too small": (lambda c: c["buffers"]["zoo.quantize_1"].update(bytes=1), "too few bytes"),
    "in use for less": (lambda c: c["buffers"]["zoo.quantize_1"].update(life=[1, 1]), "in use from"),
    "narrow": (lambda c: c["buffers"]["zoo.quantize_1"].update(holds=[0, 2]), "narrow"),
    "never written": (lambda c: c["steps"].pop(1), "what nothing wrote"),
    "written twice": (lambda c: c["steps"].append(c["steps"][1]), "again"),
    "a lower bound": (lambda c: c["arena"].update(bound=0), "lower bound"),
    "a smaller arena": (lambda c: c["arena"].update(bytes=c["arena"]["bytes"] - 1), "outside of the arena"),
    "codes of an input": (lambda c: c["buffers"][c["inputs"][0]].update(operand=[2, 0]), "what the caller gives"),
    "of no type": (lambda c: c["buffers"]["zoo.quantize_1"].update(type="xint8"), "unknown type"),
    "too wide": (lambda c: c["edges"]["zoo.quantize_2"].update(high=2), "ranges differ|leave their range"),
}


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_that_was_changed_is_refused(found, case):
    change, message = PLANS[case]
    forged = copy.deepcopy(found)
    change(forged)
    assert re.search(message, failure(forged))


def test_a_changed_certificate_is_noticed_by_its_digest(found):
    fields = {**found, "network": "other"}
    with pytest.raises(AssertionError, match="was changed"):
        checker.check(fields, Path())


@pytest.mark.slow
def test_the_example_has_a_certificate_that_holds(tmp_path):
    pytest.importorskip("onnx")
    net = compile(ROOT / "examples" / "fashion" / "fashion_a2w2_qonnx.onnx", isa="avx2")
    net.emit(tmp_path, "net")
    found = json.loads((tmp_path / "net.certificate.json").read_text())
    checker.check(found, tmp_path)
    layers = [step for step in found["steps"] if step["kind"] == "layer"]
    assert len(layers) > 5
    assert all(step["claims"] for step in layers)


@pytest.mark.slow
def test_mutants_are_refused_or_claim_the_same(found):
    read = {
        **found,
        "steps": [{k: x for k, x in step.items() if k != "c"} for step in found["steps"]],
        "buffers": {name: {k: x for k, x in b.items() if k != "codes"} for name, b in found["buffers"].items()},
    }  # what C is rendered from is not for the checker
    items = [word for k, (word, mutant) in enumerate(mutants(read)) if k % 5 == 0 and not failure(mutant)]
    assert [word for word in items if not is_harmless(word)] == []
    assert len(items) < 150


@pytest.fixture
def folder(rng, tmp_path):
    """The certificate of a layer, its checker and a file of C."""
    return written(layer(rng), tmp_path)


def run_checker(folder, *files):
    command = [sys.executable, "-I", "net_check.py", *files]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def test_the_checker_runs_by_itself(folder):
    assert run_checker(folder).returncode == run_checker(folder, "net.certificate.json").returncode == 0
    assert run_checker(folder, "none.json").returncode == 2
    (folder / "net.c").write_text("int main(void) ;\n")
    found = run_checker(folder)
    assert (found.returncode, found.stderr) == (1, "AssertionError: net.c was changed\n")
    (folder / "net.certificate.json").write_text("{")
    assert run_checker(folder).returncode == 2


def test_the_checker_needs_numpy_alone():
    text = Path(checker.__file__).read_text("utf-8")
    imported = {line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import", "from"))}
    assert imported - set(sys.stdlib_module_names) == {"numpy"}


def test_glue_lists_the_programs_that_its_c_calls(found):
    assert [step["kernels"] for step in found["steps"] if step["kind"] == "glue"] == [["pairs16_avx2"], []]
    known = {kernel["name"] for kernel in found["kernels"]}
    assert known == {name for step in found["steps"] for name in step["kernels"]}


@pytest.fixture(scope="module")
def ended_by_numbers():
    program = lower(tail(np.random.default_rng(15)), NetworkTarget("avx2"))
    return certificate(program, plan_arena(program), {}, reading_of(program.graph))


def test_lines_moves_and_numbers_claim_their_results(ended_by_numbers):
    assert failure(ended_by_numbers) == ""
    assert [step["unclaimed"] for step in ended_by_numbers["steps"] if not step["claims"]] == []
    by = {claim["by"] for step in ended_by_numbers["steps"] for claim in step["claims"]}
    assert by >= {"table", "numbers"}


def test_what_is_moved_or_kept_is_on_the_scale_it_was_on(ended_by_numbers):
    """The scale of the greatest of a window, and of a last layer's sums, which are on the product of both scales."""
    for edge in ("tail.max_pool", "tail.matmul"):
        for name, value in (("scale", encode_json_array(np.array([[0.7]]))), ("zero", 1)):
            forged = copy.deepcopy(ended_by_numbers)
            forged["edges"][edge][name] = value
            assert "elements mean something else" in failure(forged), (edge, name)


def test_elements_that_a_resize_repeats_are_claimed():
    builder = GraphBuilder("resized", "exact")
    x = quantized(builder, builder.input("x", (1, 4, 3, 3), "float32", Reals()), scale=0.7)
    edge = builder.add("resize", x, places={2: np.arange(6) // 2, 3: np.arange(6) // 2})
    program = lower(builder.build((edge,)), NetworkTarget("avx2"))
    found = certificate(program, plan_arena(program), {}, reading_of(program.graph))
    (resized,) = [step for step in found["steps"] if [op for _, op in step["nodes"]] == ["resize"]]
    assert resized["claims"]
    assert failure(found) == ""


NUMBERS = {
    "nothing is off": ("numbers", ("off",), lambda _: 0.0, "C may be farther off"),
    "it is unknown how far": ("numbers", ("off",), lambda _: float("nan"), "C may be farther off"),
    "a bias": ("numbers", None, one_more, "C may be farther off"),
    "another code": ("table", ("table",), lambda x: x[:, ::-1], "chain and C's formula differ"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_moves_and_numbers_that_were_changed_are_refused(ended_by_numbers, case):
    by, path, value, message = NUMBERS[case]
    step = next(k for k, step in enumerate(ended_by_numbers["steps"]) if step["claims"][0]["by"] == by)
    name = next(iter(ended_by_numbers["steps"][step]["constants"]), "")
    where = ("claims", 0, *path) if path else ("constants", name)
    assert message in failure(changed(ended_by_numbers, step=step, path=where, value=value))


@pytest.mark.parametrize(("value", "message"), [(lambda x: [], "nothing of why"), (lambda x: x * 2, "zip"), (list, "")])
def test_every_result_has_one_claim(ended_by_numbers, value, message):
    for k, step in enumerate(ended_by_numbers["steps"]):
        found = failure(changed(ended_by_numbers, step=k, path=("claims",), value=value))
        assert (message in found) if message else not found, step


def test_integers_as_the_callers_numbers_are_their_own(rng):
    """Moves of channels that differ in range keep their scale; on another scale they are refused."""
    builder = GraphBuilder("given", "exact")
    x = builder.input("x", (1, 4), "float32", Reals())
    edge = quantized(builder, x, high=7, scale=0.1)
    edge = builder.add("matmul", edge, builder.constant(rng.integers(-2, 3, (4, 3)).astype(np.float32), "w"))
    program = lower(builder.build((edge,)), NetworkTarget("avx2"))
    found = certificate(program, plan_arena(program), {}, reading_of(program.graph))
    assert [step["claims"][0]["by"] for step in found["steps"]][-1] == "numbers"
    assert failure(found) == ""
    assert "farther off" in failure(
        changed(
            found,
            step=-1,
            path=("chain",),
            value=lambda ops: [*ops[:-1], {**ops[-1], "is": "before"}, {**ops[-1], "of": ["before", "scale0"]}],
        )
    )


@pytest.mark.parametrize("step", [3, 4])
def test_a_table_leaves_no_sum_out(found, step):
    """The sums that are checked come from the codes that are read, whatever a claim says lies between them."""

    def entry(given, name, value):
        return changed(given, step=step, path=("claims", 0, name), value=value)

    wrong = entry(found, "table", lambda x: np.repeat(x[:, :1], x.shape[1], axis=1))
    for apart in (2, 3, 10**6):
        assert failure(entry(wrong, "apart", lambda _, n=apart: n))
    assert failure(entry(found, "first", lambda n: n + 1))
    assert failure(entry(found, "first", lambda n: n + 10**6))


def depthwise(rng):
    """A depthwise convolution of codes with a scale a channel, and channels of the result in another order."""
    builder = GraphBuilder("depthwise", "exact")
    scale = rng.uniform(0.1, 1, (1, 8, 1, 1)).astype(np.float32)
    x = builder.input("x", (1, 8, 5, 5), "float32", Integers.between(0, 3, scale))
    w = builder.constant(rng.integers(-3, 4, (8, 1, 3, 3)).astype(np.float32), "w")
    window = SlidingWindow((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    return builder.build((quantized(builder, builder.add("conv", x, w, window=window, groups=8), scale=0.7),))


def test_a_depthwise_layer_may_read_a_scale_a_channel(rng):
    found = certified(depthwise(rng))
    assert [step["unclaimed"] for step in found["steps"]] == [""]
    assert failure(found) == ""
    weights = found["steps"][0]["sums"]["weights"]
    summed = changed(found, step=0, path=("sums", "weights"), value=lambda w: w.reshape(1, 1, 8, 9))
    assert weights["shape"] == [8, 1, 1, 9]
    assert "codes mean other integers" in failure(summed)
    other = copy.deepcopy(found)
    other["edges"]["x"]["scale"] = encode_json_array(one_more(checker.array(found["edges"]["x"]["scale"]).copy()))
    assert "chain and C's formula differ" in failure(other)


def test_moved_channels_keep_their_own_range(rng):
    found = certified(sliced(rng))
    assert [bool(step["claims"]) for step in found["steps"][:2]] == [True, True]
    assert found["steps"][1]["sums"]["rows"] == [3, 1]
    assert failure(found) == ""
    assert "leave their range" in failure(changed(found, step=1, path=("sums", "rows"), value=lambda _: [1, 3]))


def test_squares_are_no_lines():
    """Though they meet the sums at both ends of the range."""
    values = {"sum": (np.array([[0.0, 5.0]]), 1.0, 0.0), "k": (np.array([[5.0]]), 0.0, 0.0)}
    chain = [{"op": "mul", "of": ["sum", "sum"], "is": "v0"}, {"op": "div", "of": ["v0", "k"], "is": "v1"}]
    result, rises, _ = checker.evaluate(chain, values, True)["v1"]
    assert (result == values["sum"][0]).all()
    assert np.isnan(rises).all()


NUMBER = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "sub", "mul", "div", "max", "min", "root"]), NUMBER), max_size=9), NUMBER
)
def test_real_numbers_are_as_near_to_floats_as_is_said(drawn, start):
    """Of each value of a chain, in fractions; roots have 50 bits there."""
    drawn = [(op, abs(x) + 1 if op in ("div", "root") else x) for op, x in drawn]
    at = {"sum": np.array([[start]]), **{f"k{i}": np.array([[x]]) for i, (_, x) in enumerate(drawn)}}
    names = ["sum", *(f"v{i}" for i in range(len(drawn)))]
    chain = [
        {"op": op, "of": [name, f"k{i}"], "is": f"v{i}"}
        for i, (name, (op, _)) in enumerate(zip(names, drawn, strict=False))
    ]
    chain = [{**op, "of": op["of"][1:]} if op["op"] == "root" else op for op in chain]
    floats = checker.evaluate(chain, {k: (x, 0.0, 0.0) for k, x in at.items()}, True)
    exact = checker.evaluate(chain, {k: (np.frompyfunc(Fraction, 1, 1)(x), 0, 0) for k, x in at.items()}, True)
    for name in names:
        (found, _, off), (real, _, spread) = floats[name], exact[name]
        far, room = (np.ravel(np.broadcast_to(x, (1, 1)))[0] for x in (off, spread))
        assert abs(Fraction(found.item()) - real.item()) <= Fraction(float(far)) + Fraction(room)


CALLED = {
    "greatest": lambda: MaxPool2d(8, 2, 2, isa="avx512"),
    "lookup16": lambda: Lookup(8, np.arange(4), 2, isa="avx512"),
    "lookup32": lambda: Lookup(8, np.arange(32), 5, isa="avx512"),
    "mean, mean_even": lambda: AvgPool2d(8, 2, 2, isa="avx512"),
    "": lambda: Pad2d(8, 2, 1, isa="avx512"),
}


@pytest.mark.parametrize("names", CALLED)
def test_the_programs_of_glue(names):
    glue = CALLED[names]()
    assert ", ".join(p.spec.name for p in list_called("avx512", glue.constants)) == names


def test_real_numbers_that_a_reshape_leaves_in_their_place_have_their_range():
    quant = node("Quant", "x one zero four", "q", domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND")
    moved = [node("Sigmoid", "q", "s"), node("Reshape", "s shape", "r"), node("Concat", "r r", "y", axis=1)]
    constants = {"one": np.float32(0.5), "zero": np.float32(0), "four": np.float32(4), "shape": np.array([1, 8])}
    found = {**compile(model([quant, *moved], {"x": (1, 4, 2)}, constants), isa="avx2").certificate, "files": {}}
    assert found["buffers"]["r"]["alias"] == "s"
    assert failure(found) == ""


def test_ranges_of_channels_that_lie_flat_are_spread_over_features():
    """Codes whose range differs by channel, flattened, then a product: the certificate could not be made."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-7, 8, (16, 1, 3, 3)).astype(np.float32)
    weights[3] = 0
    constants = {
        "w": weights,
        "v": rng.integers(-7, 8, (16 * 25, 2)).astype(np.float32),
        "m": rng.integers(1, 9, (16, 1, 1)).astype(np.float32),
        "a": np.full((16, 1, 1), 99, np.float32),
        **{name: np.float32(value) for name, value in (("d", 64), ("low", 0), ("high", 255))},
    }
    chain = [node("Mul", "s m", "t"), node("Add", "t a", "u"), node("Div", "u d", "f"), node("Floor", "f", "g")]
    ends = [node("Clip", "g low high", "q"), node("Flatten", "q", "r"), node("MatMul", "r v", "y")]
    file = model([node("Conv", "x w", "s", pads=[1] * 4), *chain, *ends], {"x": (1, 1, 5, 5)}, constants)
    net = compile(file, isa="avx2", codes=InputCodes(8))
    found = net.certificate
    assert failure(found) == ""
    (dense,) = [step for step in found["steps"] if step["nodes"] and step["nodes"][-1][1] == "matmul"]
    low, high = (checker.array(found["edges"][dense["inputs"][0]][end]).ravel() for end in ("low", "high"))
    assert len(set(high)) > 1
    products = [np.repeat(end, 25)[:, None] * constants["v"] for end in (low, high)]
    assert checker.array(dense["sums"]["low"]).tolist() == np.minimum(*products).sum(0).tolist()
    assert checker.array(dense["sums"]["high"]).tolist() == np.maximum(*products).sum(0).tolist()
    assert "certificate" in " ".join(net.files("net"))


@pytest.fixture(scope="module", params=[("unsigned", 8, 0.3, 4), ("bipolar", 1, 1.0, 4), ("signed", 8, 0.01, 4096)])
def declared(request):
    """A product of floats that were declared to be codes, and what they were declared to be."""
    encoding, bits, scale, inputs = request.param
    weights = np.random.default_rng(0).integers(-100, 101, (inputs, 3)).astype(np.float32)
    return model([node("MatMul", "x w", "y")], {"x": (1, inputs)}, {"w": weights}), InputCodes(bits, scale, encoding)


@pytest.mark.parametrize("reference", ["exact", "onnxruntime", "onnx"])
def test_conversions_of_declared_codes_are_claimed(declared, reference):
    """To codes and back to the caller's numbers; a range, scale or zero point that was not declared is refused."""
    file, codes = declared
    found = compile(file, isa="avx2", codes=codes, reference=reference).certificate
    assert [step["unclaimed"] for step in found["steps"]] == [""] * 3
    assert found["steps"][0]["claims"] == [{"by": "conversion", "is": "sum"}]
    assert failure(found) == ""
    for key in ("low", "high", "scale", "zero"):
        forged = copy.deepcopy(found)
        forged["edges"]["x"][key] = encode_json_array(checker.array(forged["edges"]["x"][key]) + 1)
        assert failure(forged), key
    for key, value in (("chain", [{"op": "max", "of": ["sum", "sum"], "is": "v0"}]), ("constants", {"k0": 1})):
        forged = copy.deepcopy(found)
        forged["steps"][0][key] = value
        assert "a conversion has no chain" in failure(forged)


def test_the_range_of_an_input_is_that_of_its_type():
    constants = {"s": np.float32(0.5), "z": np.uint8(3), "w": np.eye(4, dtype=np.int8), "t": np.float32(1)}
    nodes = [node("MatMulInteger", "x w z", "y")]
    found = compile(model(nodes, {"x": (1, 4)}, constants, dtype=2), isa="avx2").certificate
    assert (found["edges"]["x"]["low"], found["edges"]["x"]["high"]) == (0, 255)
    assert failure(found) == ""
    for low, high in ((0, 0), (0, 254), (1, 255), (255, 0)):
        forged = copy.deepcopy(found)
        forged["edges"]["x"].update(low=low, high=high)
        assert "the range of x is" in failure(forged)
