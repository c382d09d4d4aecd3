"""Fine-tuning: PyTorch's run has the codes of the file, and training makes what is lost less, or changes nothing."""

import json

import numpy as np
import onnx
import pytest
from support.onnx_files import float_network, model, node

from bitsynth.errors import SpecError
from bitsynth.graph.read import read
from bitsynth.graph.reference import run
from bitsynth.progress import silent
from bitsynth.quantization import FineTuning, quantize
from bitsynth.quantization.calibration import Calibration
from bitsynth.quantization.float_model import FloatModel, FloatRunner, simplify
from bitsynth.quantization.quantized_model import Corrections, Widths, write_model
from bitsynth.quantization.reconstruction import reconstruct
from bitsynth.quantization.search import relative_errors

pytest.importorskip("onnxruntime")
pytest.importorskip("scipy")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

from bitsynth.quantization import finetuning  # noqa: E402
from bitsynth.quantization.torch_network import TorchNetwork  # noqa: E402


def network():
    """A float network with padding, strides, a pool, a residual addition and two kinds of dense layers."""
    rng = np.random.default_rng(3)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "w3": (8, 6), "w4": (5, 6), "b4": (5,)}
    values = {name: (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))) for name, shape in shapes.items()}
    nodes = [
        node("Conv", "x w1 b1", "c1", auto_pad="SAME_UPPER", strides=[2, 2]),
        node("Relu", "c1", "a1"),
        node("Conv", "a1 w2", "c2", pads=[1, 1, 1, 1]),
        node("Add", "c2 a1", "s"),
        node("Relu", "s", "a2"),
        node("MaxPool", "a2", "m", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "m", "p"),
        node("Flatten", "p", "f"),
        node("MatMul", "f w3", "d"),
        node("LeakyRelu", "d", "e", alpha=0.25),
        node("Gemm", "e w4 b4", "y", transB=1),
    ]
    return float_network(nodes, {"x": (1, 3, 9, 9)}, values)


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(7).normal(size=(60, 3, 9, 9)).astype(np.float32)


@pytest.fixture(scope="module")
def calibration(data):
    result = Calibration(FloatModel(simplify(network(), {}, 1, {})), [{"x": x[None]} for x in data])
    result.collect(silent)
    return result


def widths_of(calibration, acts, weights):
    edges = dict.fromkeys(calibration.network.searched_edges, acts)
    fixed = dict.fromkeys(calibration.network.other_edges, 8)
    return Widths({**edges, **fixed}, dict.fromkeys((p.name for p in calibration.network.products), weights))


def differing(calibration, widths, file):
    """The share of codes of quantized edges that differ between PyTorch's run in float64 and the exact reference."""
    names = {n.input[0]: n.output[0] for n in file.graph.node if n.op_type == "Quant" and n.input[0] in widths.edges}
    in_torch = TorchNetwork(file, double=True)
    inputs = {"x": in_torch.tensor(np.stack([s["x"] for s in calibration.samples[:8]]))}
    results = dict(zip(names, in_torch.run(inputs, [*names.values()]), strict=True))
    scales = {n.input[0]: n.input[1] for n in file.graph.node if n.op_type == "Quant"}
    graph = read(file, reference="exact")
    off, count = 0, 0
    for k, sample in enumerate(calibration.samples[:8]):
        exact = run(graph, sample)
        for edge, result in names.items():
            own = results[edge][k].numpy() / float(in_torch.constants[scales[edge]])
            assert np.array_equal(np.rint(own), own)
            wanted = exact.floats(result) / float(in_torch.constants[scales[edge]])
            assert np.abs(own - np.rint(wanted)).max() <= 1
            off, count = off + int((own != np.rint(wanted)).sum()), count + own.size
    return off / count


@pytest.mark.parametrize(("acts", "weights"), [(2, 1), (2, 2), (3, 3), (8, 8)])
def test_torch_has_the_codes_of_the_file(acts, weights, calibration):
    """Before and after training. Sums in the middle between two codes may be rounded to either."""
    widths = widths_of(calibration, acts, weights)
    before = reconstruct(calibration, widths)
    assert differing(calibration, widths, write_model(calibration, widths, before)) < 0.002
    tuned = finetuning.fine_tune(calibration, widths, before, None, FineTuning(steps=10), silent)
    assert differing(calibration, widths, write_model(calibration, widths, tuned.corrections)) < 0.002


def test_bipolar_weights_stay_odd(calibration):
    """In the run that is trained, in the file that is written of it, and after steps of training."""
    widths = widths_of(calibration, 2, 2)
    widths = Widths(widths.edges, widths.weights, frozenset(widths.weights))
    before = reconstruct(calibration, widths)
    file = write_model(calibration, widths, before)
    assert differing(calibration, widths, file) < 0.002
    tuned = finetuning.fine_tune(calibration, widths, before, None, FineTuning(steps=10), silent)
    written = TorchNetwork(write_model(calibration, widths, tuned.corrections))
    for name, (grid, rounded) in tuned.corrections.weights.items():
        assert set(np.unique(np.rint(rounded / grid.scale))) <= {-3.0, -1.0, 1.0, 3.0}, name
    quantized = TorchNetwork(file)
    parameters = finetuning._Parameters(calibration, widths, before, quantized, file)
    with torch.no_grad():
        for value in parameters.values.values():
            value.add_(0.3 * torch.rand(value.shape, generator=torch.Generator().manual_seed(1)))
        constants = parameters.constants()
        written = TorchNetwork(write_model(calibration, widths, parameters.corrections(before)))
        inputs = {"x": torch.from_numpy(np.stack([s["x"] for s in calibration.samples]))}
        assert torch.equal(quantized.run(inputs, ["y"], constants)[0], written.run(inputs, ["y"])[0])


def layer_norm(rng):
    """A float network of two dense layers with a layer norm between them."""
    constants = {"w": rng.normal(size=(8, 12)), "v": rng.normal(size=(12, 4)) / 4, "epsilon": np.array(1e-5)}
    nodes = [
        node("MatMul", "x w", "d"),
        node("ReduceMean", "d", "mean", axes=[-1]),
        node("Sub", "d mean", "centred"),
        node("Mul", "centred centred", "squares"),
        node("ReduceMean", "squares", "var", axes=[-1]),
        node("Add", "var epsilon", "sum"),
        node("Sqrt", "sum", "deviation"),
        node("Div", "centred deviation", "normal"),
        node("MatMul", "normal v", "y"),
    ]
    return float_network(nodes, {"x": (1, 8)}, constants)


def test_edges_left_in_floats_are_trained_through():
    """Samples of very different sizes: 8 bits of the squares in a layer norm would spoil the output of small ones."""
    rng = np.random.default_rng(5)
    data = (rng.normal(size=(80, 8)) * np.exp2(rng.uniform(-6, 6, size=(80, 1)))).astype(np.float32)
    net = layer_norm(rng)
    result = quantize(net, data, isa="avx2", act_bits=(8,), w_bits=(3,), loss=0.95, finetune=FineTuning(steps=30))
    in_floats = set(result.report.in_floats)
    assert in_floats
    quantized = {each.input[0] for each in result.model.graph.node if each.op_type == "Quant"}
    assert not in_floats & quantized
    assert result.report.finetuned.steps == 30

    samples = [{"x": row[None]} for row in data]
    calibration = Calibration(FloatModel(simplify(net, {}, 1, {}), frozenset(in_floats)), samples)
    calibration.collect(silent)
    widths = widths_of(calibration, 8, 3)
    before = reconstruct(calibration, widths)
    tuned = finetuning.fine_tune(calibration, widths, before, None, FineTuning(steps=30), silent)
    assert differing(calibration, widths, write_model(calibration, widths, tuned.corrections)) < 0.002


def test_parameters_stand_for_the_written_file(calibration):
    """The run that is trained and the file that is written of it are the same network."""
    widths = widths_of(calibration, 2, 2)
    before = reconstruct(calibration, widths)
    file = write_model(calibration, widths, before)
    quantized = TorchNetwork(file)
    parameters = finetuning._Parameters(calibration, widths, before, quantized, file)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in parameters.values.values():
            value.add_(0.3 * torch.rand(value.shape, generator=generator))
        constants = parameters.constants()
        written = TorchNetwork(write_model(calibration, widths, parameters.corrections(before)))
        inputs = {"x": torch.from_numpy(np.stack([s["x"] for s in calibration.samples]))}
        assert torch.equal(quantized.run(inputs, ["y"], constants)[0], written.run(inputs, ["y"])[0])


def test_training_lowers_the_loss_and_is_repeatable(calibration):
    """Training starts from a network whose biases are wrong."""
    widths = widths_of(calibration, 4, 4)
    wrong = {p.name: np.full(1, 0.3, np.float32) for p in calibration.network.products}
    before = Corrections(wrong, reconstruct(calibration, widths).weights)
    length = FineTuning(steps=150)
    first, second = (finetuning.fine_tune(calibration, widths, before, None, length, silent) for _ in range(2))
    assert first.is_better
    assert first.steps == 150
    assert len(first.held_back) == 12
    errors = []
    for corrections in (before, first.corrections):
        run = FloatRunner(write_model(calibration, widths, corrections, runnable=True), ["y"])
        results = [(run(calibration.samples[k])["y"],) for k in first.held_back]
        errors.append(relative_errors(results, [calibration.outputs[k] for k in first.held_back])[0])
    assert errors[1] < errors[0]
    files = [write_model(calibration, widths, x.corrections).SerializeToString() for x in (first, second)]
    assert files[0] == files[1]


def test_other_samples_are_trained_on(calibration):
    """Then all samples of the calibration judge, and none of them is trained on."""
    widths = widths_of(calibration, 4, 4)
    wrong = {p.name: np.full(1, 0.3, np.float32) for p in calibration.network.products}
    before = Corrections(wrong, reconstruct(calibration, widths).weights)
    rng = np.random.default_rng(9)
    others = [{"x": rng.random(calibration.samples[0]["x"].shape, np.float32)} for _ in range(200)]
    tuned = finetuning.fine_tune(calibration, widths, before, None, FineTuning(steps=150), silent, others)
    assert tuned.is_better
    assert (tuned.held_back, tuned.trained) == (tuple(range(len(calibration.samples))), 200)
    misleading = [{"x": sample["x"] * 0} for sample in others]
    onto = finetuning.fine_tune(calibration, widths, before, None, FineTuning(steps=150), silent, misleading)
    errors = []
    for corrections in (tuned.corrections, onto.corrections):
        run = FloatRunner(write_model(calibration, widths, corrections, runnable=True), ["y"])
        results = [(run(sample)["y"],) for sample in calibration.samples]
        errors.append(relative_errors(results, calibration.outputs)[0])
    assert errors[0] < errors[1]


def test_a_worse_state_is_not_kept(calibration, monkeypatch):
    monkeypatch.setattr(finetuning, "_WEIGHT_RATE", 50.0)
    monkeypatch.setattr(finetuning, "_OTHER_RATE", 50.0)
    widths = widths_of(calibration, 8, 8)
    before = reconstruct(calibration, widths)
    tuned = finetuning.fine_tune(calibration, widths, before, None, FineTuning(steps=5), silent)
    assert tuned.corrections is before
    assert not tuned.is_better


def test_an_operator_without_gradients_is_named(data):
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "v": rng.normal(size=(4, 2)).astype(np.float32)}
    nodes = [
        node("Conv", "x w", "c", name="first"),
        node("Softplus", "c", "s", name="soft"),
        node("GlobalAveragePool", "s", "p", name="mean"),
        node("Flatten", "p", "f", name="flat"),
        node("MatMul", "f v", "y", name="last"),
    ]
    with pytest.raises(SpecError, match=r"fine-tuning does not have the node Softplus_1 \(Softplus\): its operator"):
        quantize(model(nodes, {"x": (1, 3, 9, 9)}, weights, opset=17), data, isa="avx2", finetune=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"finetune": 0}, "fine-tuning takes a number of minutes, or of steps, above 0"),
        ({"finetune": FineTuning(steps=1), "samples": 10}, "data have 10 samples; fine-tuning takes 20 at least"),
        ({"finetune": FineTuning(steps=1), "finetune_data": 10}, "data have 10 samples; fine-tuning takes 20 at least"),
        ({"finetune_data": 30}, "there are data for fine-tuning, but no length of it"),
        ({"finetune": FineTuning(steps=1), "loss": 1e-6}, "lose"),
    ],
)
def test_what_does_not_fit_is_refused(options, message, data):
    count, others = options.pop("samples", len(data)), options.pop("finetune_data", 0)
    options |= {"finetune_data": data[:others]} if others else {}
    with pytest.raises(SpecError, match=message):
        quantize(network(), data[:count], **{"isa": "avx2", "act_bits": (2,), "w_bits": (2,), **options})


def test_the_command_says_what_training_did(ended, fails, tmp_path, data):
    source, samples, out, page = (tmp_path / name for name in ("net.onnx", "x.npy", "q.onnx", "page.html"))
    onnx.save(network(), source)
    np.save(samples, data)
    given = ["quantize", str(source), "--data", str(samples), "--isa", "avx2", "-o", str(out), "--html", str(page)]
    given += ["--act-bits", "2", "--w-bits", "2", "--loss", "90%"]
    shown, _ = ended(0, *given, "--finetune", "30steps")
    assert "training 30 steps on 48 samples" in shown
    assert "on the 12 samples held back" in shown
    assert "before fine-tuning, of 30 steps on 48 samples" in page.read_text()
    claims = next(x.value for x in onnx.load(out).metadata_props if x.key == "bitsynth.quantize")
    assert json.loads(claims)["measured"]["samples"] == 12
    np.save(tmp_path / "others.npy", np.concatenate([data, data]))
    more = ["--finetune-data", str(tmp_path / "others.npy")]
    shown, _ = ended(0, *given, "--finetune", "30steps", *more)
    assert "training 30 steps on 120 samples" in shown
    assert "on the 60 samples held back" in shown
    assert "no length of it" in fails(2, *given, *more)
    np.save(tmp_path / "others.npy", data[:, :2])
    assert "data for fine-tuning of x have shape" in fails(2, *given, "--finetune", "30steps", *more)
    assert "--finetune: want minutes" in fails(2, *given, "--finetune", "soon")
