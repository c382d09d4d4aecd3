"""Goals of the search for widths, bounds that no choice keeps, and searches that are interrupted."""

import json
import re
import shutil
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from support.onnx_files import model, node

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.quantization import quantize
from bitsynth.quantization.goal import goal_of
from bitsynth.quantization.grids import WeightCodes
from bitsynth.quantization.search import Search
from bitsynth.quantization.search_state import restore, state_path

pytest.importorskip("onnxruntime")
pytest.importorskip("scipy")
pytestmark = pytest.mark.slow

WIDTHS: dict[str, Any] = {"isa": "avx2", "act_bits": (2, 8), "w_bits": (2, 8)}
"""Of an instruction set whose processors reorder instructions: ordering them here takes most of a search."""


def chain(rng, *, layers=4):
    """A float network of dense layers, the second much wider than the others."""
    sizes = [16, 16, 128, 128, *[16] * layers][: layers + 1]
    nodes, constants, edge = [], {}, "x"
    for k, (rows, columns) in enumerate(pairwise(sizes)):
        constants[f"w{k}"] = (rng.normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)
        nodes += [node("MatMul", f"{edge} w{k}", f"p{k}", name=f"m{k}"), node("Relu", f"p{k}", f"r{k}", name=f"r{k}")]
        edge = f"r{k}"
    return model(nodes, {"x": (1, 16)}, constants, outputs=edge, opset=17)


@pytest.fixture(scope="module")
def network():
    return chain(np.random.default_rng(5))


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(6).normal(size=(40, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def ends(network, data):
    """The trials at the most bits and of the fewest cycles."""
    report = quantize(network, data, loss=0.9, **WIDTHS).report
    return report.trials[0], min(report.trials, key=lambda t: t.cycles)


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ({}, ("cycles", 0.01)),
        ({"loss": 0.1}, ("cycles", 0.1)),
        ({"cycles": 10}, ("loss", None)),
        ({"bytes": 10, "loss": 0.2}, ("cycles", 0.2)),
        ({"bytes": 10, "minimize": "cycles"}, ("cycles", 0.01)),
        ({"cycles": 10, "loss": 0.2, "minimize": "loss"}, ("loss", 0.2)),
    ],
)
def test_what_is_minimized(bounds, wanted):
    goal = goal_of(**bounds)
    assert (goal.minimize, goal.loss) == wanted


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"loss": 1.5}, "the loss allowed is 1.5"),
        ({"cycles": 0}, "the cycles allowed are 0"),
        ({"bytes": float("nan")}, "the bytes allowed are nan"),
        ({"minimize": "loss"}, "give a bound of cycles or bytes too"),
    ],
)
def test_goals_that_mean_nothing_are_refused(bounds, message):
    with pytest.raises(SpecError, match=message):
        goal_of(**bounds)


@pytest.mark.parametrize("by", ["cycles", "bytes"])
def test_a_bound_of_cost_alone_gives_the_least_loss_within(by, network, data, ends):
    most, least = ends
    bound = (getattr(most, by) + getattr(least, by)) // 2
    report = quantize(network, data, **{by: bound}, **WIDTHS).report
    cost = report.cycles if by == "cycles" else report.weight_bytes
    assert cost <= bound < getattr(most, by)
    assert report.minimized == "loss"
    assert report.loss == pytest.approx(min(t.loss for t in report.trials if getattr(t, by) <= bound), rel=1e-3)
    assert most.loss < report.loss < least.loss


def test_all_bounds_hold(network, data, ends):
    most, _ = ends
    report = quantize(network, data, loss=0.4, bytes=most.bytes * 0.8, minimize="cycles", **WIDTHS).report
    assert report.loss <= 0.4
    assert report.weight_bytes <= most.bytes * 0.8


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"cycles": 1}, "the least loss with at most 1 cycles: not possible. The best found has "),
        ({"bytes": 10}, "the least loss with at most 10 bytes: not possible"),
        ({"loss": 1e-6}, "The most bits, 8 of activations and 8 of weights, lose "),
        ({"loss": 0.05, "cycles": 1}, "a loss of at most 0.05 and at most 1 cycles: not possible"),
    ],
)
def test_bounds_that_cannot_be_kept_name_the_best_and_a_layer(bounds, message, network, data):
    with pytest.raises(SpecError) as refused:
        quantize(network, data, **bounds, **WIDTHS)
    assert message in str(refused.value)
    assert " stands in the way, with " in str(refused.value)


def test_the_layer_that_costs_most_stands_in_the_way(network, data):
    with pytest.raises(SpecError, match=r"(p2|r2) stands in the way"):
        quantize(network, data, bytes=100, **WIDTHS)


class InterruptAt:
    """Raises KeyboardInterrupt at the n-th message of a kind, and counts all of them."""

    def __init__(self, message, count):
        self.message, self.rest, self.messages = message, count, []

    def __call__(self, message, done=0, total=None):
        self.messages.append(message)
        self.rest -= message == self.message
        if self.rest == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("message", "count"), [("costs", 3), ("widths", 4)])
def test_an_interrupted_search_goes_on(message, count, network, data, searches, monkeypatch):
    options = {"loss": 0.31, **WIDTHS}
    for path in searches.glob("*.json"):
        path.unlink()
    with pytest.raises(KeyboardInterrupt):
        quantize(network, data, progress=InterruptAt(message, count), **options)
    newest = max(searches.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    kept = restore(newest)
    done = len(kept.overheads), len(kept.estimates), len(kept.trials)
    assert done > ((0, 0, 0) if message == "costs" else (3, 1, 1))
    calls = []
    add_costs = Search._add_costs

    def count_costs(self, *bits):
        calls.append(bits)
        return add_costs(self, *bits)

    monkeypatch.setattr(Search, "_add_costs", count_costs)
    again = quantize(network, data, **options).report
    assert len(calls) == 4 - done[0]
    newest.unlink()
    anew = quantize(network, data, **options).report
    assert (anew.layers, anew.loss, anew.trials) == (again.layers, again.loss, again.trials)


def test_what_a_product_makes_may_be_searched_too(searches):
    """As in the linear bottlenecks of MobileNetV2, where no activation is between two products."""
    rng = np.random.default_rng(8)
    constants = {f"w{k}": rng.normal(size=(16, 16)).astype(np.float32) for k in range(3)}
    nodes = [node("MatMul", f"{'xpq'[k]} w{k}", "pqy"[k], name=f"m{k}") for k in range(3)]
    network = model(nodes, {"x": (1, 16)}, constants, outputs="y", opset=17)
    report = quantize(network, rng.normal(size=(20, 16)).astype(np.float32), loss=0.2, **WIDTHS).report
    assert report.loss <= 0.2
    assert len(report.trials) > 1


def test_a_resumed_search_has_the_same_estimates(data, searches, monkeypatch):
    """Also of bipolar codes with the most bits, which lose more than ternary ones of weights that are -1, 0 and 1."""
    weights = np.random.default_rng(7).integers(-1, 2, (16, 8)).astype(np.float32)
    network = model([node("MatMul", "x w", "y", name="m")], {"x": (1, 16)}, {"w": weights}, outputs="y", opset=17)
    estimates = []
    prepare = Search.prepare

    def record(self):
        prepare(self)
        estimates.append(dict(self.state.estimates))

    monkeypatch.setattr(Search, "prepare", record)
    for _ in range(2):
        quantize(network, data, loss=0.9, isa="neon", act_bits=(8,), w_bits=(1, 2))
    first, resumed = estimates
    assert resumed == first
    assert [loss > 0 for (_, choice), loss in first.items() if choice == WeightCodes(2, bipolar=True)] == [True]


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:-40], lambda text: re.sub(rb'"costs":\[.*?\]\],', b'"costs":[],', text), lambda text: b""],
    ids=["cut", "without_costs", "empty"],
)
def test_a_damaged_state_is_begun_anew(damage, network, data, searches, ends):
    for path in searches.glob("*.json"):
        text = path.read_bytes()
        path.write_bytes(damage(text))
        assert path.read_bytes() != text
        assert not restore(path).overheads
    again = quantize(network, data, loss=0.9, **WIDTHS).report
    assert (again.trials[0], min(again.trials, key=lambda t: t.cycles)) == ends


def test_runs_for_another_goal_do_not_change_what_is_chosen(network, data, searches):
    for path in searches.glob("*.json"):
        path.unlink()
    first = quantize(network, data, loss=0.05, **WIDTHS).report
    quantize(network, data, bytes=first.weight_bytes - 1, front=True, **WIDTHS)
    again = quantize(network, data, loss=0.05, **WIDTHS).report
    assert again == first


def test_costs_are_measured_anew_after_a_kernel_or_a_schedule_is_added(tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    before = state_path({"model": b"x"}, "neon")
    assert state_path({"model": b"x"}, "neon") == before
    names = {before}
    for place in ("neon/a2w2.json", "neon/popcount-c64/kernel.json", "tuned/neon/a2w2.json"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("{}")
        names.add(state_path({"model": b"x"}, "neon"))
    assert len(names) == 4
    (tmp_path / "tuned/neon/a2w2.json").write_text("{} ")
    assert state_path({"model": b"x"}, "neon") not in names
    after = state_path({"model": b"x"}, "neon")
    (tmp_path / "avx2").mkdir()
    (tmp_path / "avx2/other.json").write_text("{}")
    assert state_path({"model": b"x"}, "neon") == after


def test_costs_are_measured_anew_with_other_packages_and_tables(tmp_path, monkeypatch):
    before = state_path({}, "neon")
    with monkeypatch.context() as patch:
        patch.setattr("onnxruntime.__version__", "0.0.1")
        assert state_path({}, "neon") != before
    shutil.copytree(paths.isa_specs() / "neon", tmp_path / "mine")
    table = tmp_path / "mine" / "isa.toml"
    table.write_text(table.read_text().replace('name = "neon"', 'name = "mine"'))
    monkeypatch.setenv("BITSYNTH_ISA", str(tmp_path))
    own = state_path({}, "neon")
    assert own != before
    (tmp_path / "mine" / "memory.toml").touch()
    assert state_path({}, "neon") != own


def test_layers_at_the_most_bits_say_why(network, data):
    report = quantize(network, data, loss=0.02, **WIDTHS).report
    assert all(layer.why for layer in report.layers if layer.w_bits == 8)
    assert "inputs" in report.layers[0].why


def test_the_command_refuses_what_cannot_be(fails, ended, tmp_path, network, data):
    source, samples, out = (tmp_path / name for name in ("net.onnx", "x.npy", "q.onnx"))
    onnx.save(network, source)
    np.save(samples, data)
    given = ["quantize", str(source), "--data", str(samples), "--isa", "avx2", "-o", str(out)]
    given += ["--act-bits", "2,8", "--w-bits", "2,8"]
    assert "stands in the way" in fails(2, *given, "--cycles", "1")
    assert not out.exists()
    shown = json.loads(ended(0, *given, "--bytes", "25000", "--json")[0])
    assert shown["minimized"] == "loss"
    assert shown["weight_bytes"] <= 25000
    assert out.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--html", "net.onnx"], "--html net.onnx: a folder, or a file that is read"),
        (["--html", "x.npy"], "--html x.npy: a folder, or a file that is read"),
        (["--html", "q.onnx"], "--html and -o name the same file"),
        (["--pareto", "front", "--html", "front/front.json"], "it is in the folder of --pareto"),
    ],
    ids=str,
)
def test_no_file_that_is_read_or_of_the_front_is_replaced(more, message, fails, tmp_path, network, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(network, "net.onnx")
    np.save("x.npy", data)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.*")}
    assert message in fails(2, "quantize", "net.onnx", "--data", "x.npy", "--isa", "neon", "-o", "q.onnx", *more)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.*")} == before


def test_the_front_is_written_whole(fails, ended, tmp_path, network, data):
    pytest.importorskip("matplotlib")
    network = onnx.ModelProto.FromString(network.SerializeToString())
    hostile = "<script>alert(1)</script>"
    for item in network.graph.node:
        item.input[:] = [hostile if name == "p1" else name for name in item.input]
        item.output[:] = [hostile if name == "p1" else name for name in item.output]
    source, samples, out, page = (tmp_path / name for name in ("net.onnx", "x.npy", "q.onnx", "report.html"))
    onnx.save(network, source)
    np.save(samples, data)
    folder = tmp_path / "front"
    given = ["quantize", str(source), "--data", str(samples), "--isa", "avx2", "-o", str(out), "--loss", "20%"]
    given += ["--act-bits", "2,8", "--w-bits", "2,8", "--pareto", str(folder), "--html", str(page), "--json"]
    report = json.loads(ended(0, *given)[0])
    front = json.loads((folder / "front.json").read_text())
    files = [trial["file"] for trial in front["trials"] if trial["on_front"]]
    models = {f"front_{k + 1:02}.onnx" for k in range(len(files))}
    assert set(files) == models
    assert {path.name for path in folder.iterdir()} == models | {
        f"front.{end}" for end in ("csv", "json", "png", "svg")
    }
    assert len((folder / "front.csv").read_text().splitlines()) == len(front["trials"]) + 1
    for trial in front["trials"]:
        better = [t for t in front["trials"] if t["cycles"] <= trial["cycles"] and t["loss"] <= trial["loss"]]
        same = [t for t in better if (t["cycles"], t["loss"]) == (trial["cycles"], trial["loss"])]
        assert trial["on_front"] == (len(better) == len(same) and trial is same[0])
    text = page.read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert text.count("<circle") == len(report["trials"])
    (folder / "front_99.onnx").write_bytes(b"old")
    ended(0, *given)
    assert not (folder / "front_99.onnx").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    given[given.index(str(folder))] = str(tmp_path / "other")
    assert "it has other files" in fails(2, *given)
