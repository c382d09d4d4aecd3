"""QuantLSTMCell, as Brevitas exports its QuantLSTM: equal to Brevitas on every output."""

import numpy as np
import onnx
import pytest

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run

pytestmark = pytest.mark.filterwarnings("ignore")


def exported(path, **options):
    """A calibrated QuantLSTM as a file, an input, and what Brevitas computes for it."""
    torch, layers = pytest.importorskip("torch"), pytest.importorskip("brevitas.nn")
    export_qonnx = pytest.importorskip("brevitas.export").export_qonnx

    torch.manual_seed(0)
    lstm, x = layers.QuantLSTM(5, 8, **options), torch.randn(6, 2, 5)
    for _ in range(4):
        lstm(torch.randn(6, 2, 5))
    lstm.eval()
    with torch.no_grad():
        states, (hidden, cell) = lstm(x)
    export_qonnx(lstm, args=x, export_path=str(path), opset_version=17, dynamo=False)
    return onnx.load(path), x.numpy(), [part.numpy() for part in (states, hidden, cell)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bidirectional": True},
        {"batch_first": True},
        {"weight_bit_width": 4, "bias": False},
        {"num_layers": 2, "bidirectional": True, "shared_input_hidden_weights": True},
    ],
    ids=str,
)
def test_codes_are_those_of_brevitas(tmp_path, options):
    made, x, want = exported(tmp_path / "lstm.onnx", **options)
    graph = read(made)
    for part, wanted in zip(run(graph, {graph.inputs[0]: x}).outputs(), want, strict=True):
        np.testing.assert_array_equal(part, wanted)
    assert np.unique(want[0]).size > 20


def test_products_of_the_cell_are_layers(tmp_path):
    made, x, want = exported(tmp_path / "lstm.onnx")
    net = bitsynth.compile(made, isa="avx2")
    for part, wanted in zip(net(x), want, strict=True):
        np.testing.assert_array_equal(part, wanted)
    work = net.report().products
    assert work.macs > 0
    assert work.float_macs + work.plain_macs == 0


def test_what_a_cell_does_not_have_is_named(tmp_path):
    made, *_ = exported(tmp_path / "lstm.onnx")
    (cell,) = (one for one in made.graph.node if one.op_type == "QuantLSTMCell")
    (kept,) = (one for one in cell.attribute if one.name == "cell_acc_signed")
    cell.attribute.remove(kept)
    with pytest.raises(SpecError, match="its quantizer cell_acc has no cell_acc_signed"):
        read(made)
    cell.attribute.append(kept)
    next(one for one in cell.attribute if one.name == "cifg").i = 1
    with pytest.raises(SpecError, match=r"cifg.* is not compiled"):
        read(made)
