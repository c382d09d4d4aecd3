"""Operators that are not of standard ONNX: what the code of their own projects gives for the same model and inputs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.onnx_files import model, node
from support.project_cases import CASES

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import InputCodes, read, run

GOLDENS = Path(__file__).resolve().parents[1] / "golden" / "operators"
PAIRS = [(project, name) for name, case in CASES.items() for project in case.projects]


@pytest.fixture(scope="module")
def goldens():
    """The results of each project by the name of a case."""
    return {path.stem: dict(np.load(path)) for path in GOLDENS.glob("*.npz")}


@pytest.mark.parametrize(("project", "name"), PAIRS)
def test_an_operator_means_what_its_project_computes(goldens, project, name):
    case = CASES[name]
    (got,) = run(read(case.model), case.feed).outputs()
    assert np.array_equal(got, goldens[project][name]), goldens[project]["made_by"]


def test_every_golden_has_a_case(goldens):
    found = {(project, name) for project, values in goldens.items() for name in values.keys() - {"made_by"}}
    assert found == set(PAIRS)


@pytest.mark.parametrize("name", ["AnomalyDetection", "KeywordSpotting", "miniMobileNet"])
def test_every_layer_of_a_network_is_deeploy_s(network_models, name):
    """The goldens that Deeploy publishes for each layer, in the order of the layers."""
    folder = network_models / "deeploy" / name
    graph = read(folder / "network.onnx")
    golden = list(np.load(folder / "activations.npz").values()) + list(np.load(folder / "outputs.npz").values())
    (x,) = np.load(folder / "inputs.npz").values()
    values = run(graph, {graph.inputs[0]: x.astype(np.float32)})
    layers = ("Conv", "Gemm", "MaxPool", "RequantShift")
    items = [n.output[0] for n in onnx.load(folder / "network.onnx").graph.node if n.op_type in layers]
    assert len(golden) == len(items) + 1  # the last layer's is there twice
    for edge, want in zip([*items, graph.outputs[0]], golden, strict=True):
        assert np.array_equal(values.floats(edge), want), edge


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AnomalyDetection", "KeywordSpotting", "miniMobileNet"])
def test_compiled_networks_give_deeploy_s_outputs(network_models, name):
    """Their C, with the first product of codes and of floats."""
    folder = network_models / "deeploy" / name
    (x,), (want,) = (np.load(folder / f"{part}.npz").values() for part in ("inputs", "outputs"))
    for codes in (InputCodes(8), None):
        net = bitsynth.compile(folder / "network.onnx", isa="avx2", codes=codes)
        assert np.array_equal(net(x.astype(np.float32)), want)


def shift(mul, add, x=np.float32, **attributes):
    """A RequantShift of two channels of type x."""
    attributes = {"div": 16, "n_levels": 256, "signed": 1} | attributes
    one = node("RequantShift", "x m a", domain="PACTOps", **attributes)
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(x))
    return model([one], {"x": (1, 2, 64)}, {"m": mul, "a": add}, domains={"PACTOps": 1}, dtype=dtype)


INT64 = np.array([1 << 24, (1 << 24) + 1])
"""Offsets; float32 holds only the first."""


@pytest.mark.parametrize("reference", ["exact", "onnxruntime", "onnx"])
@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int8])
@pytest.mark.parametrize("add", [INT64, INT64.reshape(2, 1), INT64.reshape(1, 2, 1), INT64.reshape(2, 1, 1)])
def test_requant_shift_of_numbers_of_several_types(kind, add, reference):
    """As integers compute it, whatever types the file has: parameters of floats and int64, one or one a channel."""
    x = np.arange(-64, 64).reshape(1, 2, 64)
    graph = read(shift(np.array([8, 7], np.float32), -add, kind, div=1 << 17), reference=reference)
    (got,) = run(graph, {"x": x.astype(kind)}).outputs()
    want = (x * np.array([[8], [7]]) - INT64[:, None] + (1 << 16)) >> 17
    assert np.array_equal(got, want.clip(-128, 127))


def test_codes_without_a_sign_of_integers_with_one():
    """Results that the input's type does not hold are int32."""
    (got,) = run(
        read(shift(np.int64(32), np.int64(0), np.int8, signed=0)), {"x": np.full((1, 2, 64), 127, np.int8)}
    ).outputs()
    assert got.dtype == np.int32
    assert (got == 254).all()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"div": 12},
            r"RequantShift the_RequantShift: div is 12 and n_levels 256; they must be a power of two, and",
        ),
        ({"n_levels": 1}, r"div is 16 and n_levels 1; they must be a power of two"),
        (
            {"n_levels": 15},
            r"is signed with 15 levels, which Quantlab cuts to -8 to 7 and Deeploy to -7 to 6; write an",
        ),
        ({"div": 2.5}, r"div is 2.5; it needs one whole number"),
    ],
)
def test_shifts_that_projects_do_not_define_alike_are_refused(attributes, message):
    with pytest.raises(SpecError, match=message):
        read(shift(np.float32(1), np.float32(0), **attributes))


def test_factors_that_are_no_integers_are_refused():
    with pytest.raises(SpecError, match=r"mul is \[1.5\]; it needs whole numbers"):
        read(shift(np.float32(1.5), np.float32(0)))
    with pytest.raises(SpecError, match=r"add of shape \(3,\) does not broadcast to \(1, 2, 64\)"):
        read(shift(np.float32(1), np.array([1, 2, 3], np.float32)))
