"""Baselines of other packages: operands, checked results, workers and their ends, caps, missing packages."""

import json
import os
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitsynth import paths
from bitsynth.bench.baselines import start, worker
from bitsynth.bench.baselines.convolution import ConvOperands, Prepared, convolve
from bitsynth.bench.baselines.start import caps
from bitsynth.bench.layers import SUM, against_baselines
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer
from bitsynth.bench.statistics import Summary
from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.isa import load

SMALL = ResNetLayer("small", 5, 2, 3, 3, 2)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 2, 0), (3, 1, 0)])
def test_convolution(kernel, stride, padding):
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 4, (1, 2, 5, 5)), rng.integers(-1, 2, (3, 2, kernel, kernel))
    y = convolve(x, w, stride, padding)
    size = (5 + 2 * padding - kernel) // stride + 1
    assert y.shape == (1, 3, size, size)
    for o, i, j in np.ndindex(3, size, size):
        total = 0
        for c, u, v in np.ndindex(2, kernel, kernel):
            row, column = i * stride + u - padding, j * stride + v - padding
            if 0 <= row < 5 and 0 <= column < 5:
                total += x[0, c, row, column] * w[o, c, u, v]
        assert y[0, o, i, j] == total


@pytest.mark.parametrize("layer", [LAYERS[0], LAYERS[-1]], ids=lambda layer: layer.name)
def test_operands_are_exact_and_nothing_saturates(layer):
    some = ConvOperands.of(layer)
    assert set(np.unique(some.x)) == {0, 1, 2, 3}
    assert set(np.unique(some.w)) == {-1, 1}
    assert some.y.shape == (1, layer.out_channels, layer.out_height, layer.out_height)
    assert (some.y == convolve(some.x.astype(int), some.w.astype(int), layer.stride, layer.padding)).all()
    assert 64 <= np.abs(some.y).max() / some.step <= 127
    assert np.log2(some.step).is_integer()


def test_wrong_results_are_refused():
    some = ConvOperands.of(SMALL)
    Prepared(lambda: None, lambda: some.y).check(some)
    Prepared(lambda: None, lambda: some.y + 2, 2).check(some)
    with pytest.raises(Refuted, match="small: its result is off by 3, more than 2"):
        Prepared(lambda: None, lambda: some.y + 3, 2).check(some)
    with pytest.raises(Refuted, match="off by nan"):
        Prepared(lambda: None, lambda: some.y * np.nan, 2).check(some)
    with pytest.raises(Refuted, match="has shape"):
        Prepared(lambda: None, lambda: some.y[:, :1]).check(some)


def test_a_worker_prepares_and_times():
    def prepare(variant, operands, threads):
        if variant == "broken":
            raise RuntimeError("no such operator\nwith a second line")
        return Prepared(lambda: None, lambda: operands.y + (variant == "wrong"))

    variants = {"good": "fp32", "wrong": "fp32", "broken": "int8"}
    package = SimpleNamespace(VARIANTS=variants, start=lambda threads: {"threads": threads}, prepare=prepare)
    asked = [["C12"], {"variant": "good", "layer": "C12", "repeats": 3}]
    text: list[Any] = []
    worker.serve(package, 2, map(json.dumps, asked), text.append)
    first, times = text
    assert first["about"] == {"threads": 2}
    assert first["variants"] == {"good": "fp32"}
    assert first["problems"] == {
        "wrong": "Refuted: C12: its result is off by 1, more than 0",
        "broken": "RuntimeError: no such operator",
    }
    assert len(times) == 3


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A worker with the given Python text, in the place of the real one."""

    def place(text):
        (tmp_path / "fake_worker.py").write_text(text)
        monkeypatch.setattr(start, "WORKER", "fake_worker")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    return place


ECHO = "import json, os, sys\nfor line in sys.stdin: print(json.dumps([os.environ['CAP'], line]), flush=True)"


def test_a_worker_is_asked_and_stopped(fake):
    fake(ECHO)
    with start.start_worker("torch", 1, {"CAP": "low"}) as found:
        for question in ("one", "two"):
            assert found.ask(question) == ["low", f'"{question}"\n']
            os.waitpid(found.worker.child.pid, os.WUNTRACED)
        assert found.worker.child.poll() is None
    assert found.worker.child.returncode == -9


def test_a_worker_that_ends_is_named_with_its_last_words(fake):
    fake("import sys\nsys.stdin.readline()\nsys.exit('no memory')")
    with (
        start.start_worker("torch", 1, {}) as found,
        pytest.raises(ToolError, match="torch ended with exit code 1: no memory"),
    ):
        found.ask("anything")
    fake("")
    with start.start_worker("torch", 1, {}) as found:
        found.worker.child.wait()
        with pytest.raises(ToolError, match="torch ended with exit code 0: it printed nothing"):
            found.ask("anything")


def begun(packages, isa="avx512"):
    with ExitStack() as stack:
        return start.start(stack, packages, isa, 1, ["C12"], lambda message: None)


def test_baselines_are_named_and_those_that_fail_too(fake, monkeypatch):
    answer = {"about": {"version": "1"}, "variants": {"fp32": "fp32"}, "problems": {"int8": "no"}}
    fake(
        f"import json, sys\nsys.stdin.readline()\nif sys.argv[1] == 'torch': print({json.dumps(answer)!r}, flush=True)"
    )
    monkeypatch.setattr(start, "_missing", lambda package: "")
    found = begun(["torch", "onnxruntime"])
    assert [(p.name, p.kind) for p in found.baselines] == [("torch fp32", "fp32")]
    assert found.about == {"torch": {"version": "1"}}
    ended = "onnxruntime ended with exit code 0: it printed nothing"
    assert found.left_out == {"torch int8": "no", "onnxruntime": ended}


TIMED = """
import json, sys
print(json.dumps({"about": {"version": "1"}, "variants": {"fp32": "fp32"}, "problems": {}}), flush=True)
assert json.loads(sys.stdin.readline()) == ["C11", "C12"]
for line in sys.stdin:
    print(json.dumps([{"C11": 40, "C12": 60}[json.loads(line)["layer"]]] * json.loads(line)["repeats"]), flush=True)
"""


def test_a_report_against_baselines(fake, monkeypatch):
    fake(TIMED)
    monkeypatch.setattr(start, "_missing", lambda package: "")
    mine: Any = SimpleNamespace(name="A1W1", kind="bitsynth", time=lambda layer, repeats: [10] * repeats)
    heard = []
    found = against_baselines(
        "avx2", 1, [mine], ["torch", "onnxruntime"], ["C11", "C12"], 2, 3, lambda *message: heard.append(message)
    )
    assert found.subjects == ["torch fp32", "A1W1"]
    assert found.row("A1W1", SUM).against["fp32"].times == Summary.of([5, 5])
    assert found.about["torch"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert found.left_out.keys() == {"onnxruntime"}
    assert heard == [("preparing torch", 0, 2), ("measuring, rounds", 1, 2), ("measuring, rounds", 2, 2)]


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(start.NEEDS, "onnxruntime", ("onnxruntime_that_is_not", "json"))
    left_out = begun(["onnxruntime"]).left_out
    assert left_out == {"onnxruntime": "onnxruntime_that_is_not not installed: pip install 'bitsynth[peers]'"}


def test_unknown_packages_are_refused():
    with pytest.raises(SpecError, match="--baseline: unknown 'tvm'; known: torch, onnxruntime"):
        begun(["torch", "tvm"])


def test_caps():
    assert caps("avx2")["torch"].env["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert caps("avx512") == {}
    assert begun(["onnxruntime"], "avx2").left_out["onnxruntime"].startswith("it has no switch")


@pytest.mark.parametrize("isa", load.names())
def test_caps_name_packages(isa):
    found = caps(isa)
    assert found.keys() <= start.NEEDS.keys()
    assert all(bool(cap.env) != bool(cap.left_out) for cap in found.values())


def test_a_wrong_file_of_caps(tmp_path, monkeypatch):
    (tmp_path / "mine" / "baselines").mkdir(parents=True)
    (tmp_path / "mine" / "baselines" / "peers.toml").write_text("[torch]\nenvironment = {}\n")
    monkeypatch.setattr(paths, "isa_specs", lambda: tmp_path)
    with pytest.raises(SpecError, match=r"peers\.toml: .*environment"):
        caps("mine")
