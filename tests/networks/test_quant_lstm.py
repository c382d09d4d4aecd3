"""QuantLSTMCell, as Brevitas exports its QuantLSTM: equal to Brevitas on every output.

The exported files, inputs and results of Brevitas are in `tests/golden/quant_lstm.npz`, which
`python tests/networks/test_quant_lstm.py` writes again where Brevitas is installed.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run

pytestmark = pytest.mark.filterwarnings("ignore")

GOLDEN = Path(__file__).parents[1] / "golden" / "quant_lstm.npz"
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "bidirectional": {"bidirectional": True},
    "batch_first": {"batch_first": True},
    "four_bits": {"weight_bit_width": 4, "bias": False},
    "two_layers": {"num_layers": 2, "bidirectional": True, "shared_input_hidden_weights": True},
}
"""The options of Brevitas' QuantLSTM, by case."""


def stored(name):
    """The file of a case, an input, and what Brevitas computed for it."""
    with np.load(GOLDEN) as golden:
        result = onnx.load_from_string(golden[f"{name}_file"].tobytes())
        return result, golden[f"{name}_x"], [golden[f"{name}_{k}"] for k in range(3)]


@pytest.mark.parametrize("name", CASES)
def test_codes_are_those_of_brevitas(name):
    network, x, want = stored(name)
    graph = read(network)
    for part, wanted in zip(run(graph, {graph.inputs[0]: x}).outputs(), want, strict=True):
        np.testing.assert_array_equal(part, wanted)
    assert np.unique(want[0]).size > 20


def test_products_of_the_cell_are_layers():
    network, x, want = stored("plain")
    net = bitsynth.compile(network, isa="avx2")
    for part, wanted in zip(net(x), want, strict=True):
        np.testing.assert_array_equal(part, wanted)
    work = net.report().products
    assert work.macs > 0
    assert work.float_macs + work.plain_macs == 0


def test_what_a_cell_does_not_have_is_named():
    network, *_ = stored("plain")
    (cell,) = (one for one in network.graph.node if one.op_type == "QuantLSTMCell")
    (kept,) = (one for one in cell.attribute if one.name == "cell_acc_signed")
    cell.attribute.remove(kept)
    with pytest.raises(SpecError, match="its quantizer cell_acc has no cell_acc_signed"):
        read(network)
    cell.attribute.append(kept)
    next(one for one in cell.attribute if one.name == "cifg").i = 1
    with pytest.raises(SpecError, match=r"cifg.* is not compiled"):
        read(network)


def write_goldens():
    """Write the golden file, from Brevitas."""
    import torch
    from brevitas.export import export_qonnx
    from brevitas.nn import QuantLSTM

    arrays: dict[str, Any] = {}
    for name, options in CASES.items():
        torch.manual_seed(0)
        lstm, x = QuantLSTM(5, 8, **options), torch.randn(6, 2, 5)
        for _ in range(4):
            lstm(torch.randn(6, 2, 5))
        lstm.eval()
        with torch.no_grad():
            states, (hidden, cell) = lstm(x)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lstm.onnx"
            export_qonnx(lstm, args=x, export_path=str(path), opset_version=17, dynamo=False)
            arrays[f"{name}_file"] = np.frombuffer(path.read_bytes(), np.uint8)
        arrays[f"{name}_x"] = x.numpy()
        arrays |= {f"{name}_{k}": part.numpy() for k, part in enumerate((states, hidden, cell))}
    np.savez_compressed(GOLDEN, **arrays)


if __name__ == "__main__":
    write_goldens()
