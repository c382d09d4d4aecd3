"""Certificates: what is written holds by the checker, in every reference and for every mode of rounding."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from certified import certified, failure, program_of

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators.rounding import ROUNDINGS
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Integers
from bitsynth.network.arena import planned
from bitsynth.network.certificate import certificate_files, checker


def quantized(builder, edge, *, low=0, high=3, scale=0.3, mode="ROUND"):
    grid = {"low": low, "high": high, "out_scale": np.float64(scale), "out_zero": np.float64(0)}
    real = {"scale": np.float32(scale), "zero": np.float32(0), "rounding": mode, "real": "float32"}
    return builder.add("quantize", edge, name="codes", zero_first=True, **real, **grid)


def layer(rng, reference="exact", dtype="float32", between=lambda builder, edge: edge, **quantizer):
    """A convolution, a batch norm of signs both ways, what is `between`, and a quantizer."""
    builder = GraphBuilder("layer", reference)
    x = builder.input("x", (1, 8, 5, 5), dtype, Integers.between(0, 3, 0.5))
    w = builder.constant(rng.integers(-3, 4, (6, 8, 3, 3)).astype(dtype), "w")
    window = SlidingWindow((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    made = builder.add("conv", x, w, window=window, groups=1, name="sums")
    numbers = [rng.normal(size=(1, 6, 1, 1)) for _ in range(3)] + [rng.uniform(0.5, 9, (1, 6, 1, 1))]
    made = builder.add("batch_norm", made, *(builder.constant(n.astype(dtype)) for n in numbers), epsilon=1e-5)
    return builder.build((quantized(builder, between(builder, made), **quantizer),))


@pytest.mark.parametrize("reference", ["exact", "onnxruntime", "onnx"])
@pytest.mark.parametrize("mode", sorted(ROUNDINGS))
def test_a_layer_is_its_chain_in_every_rounding(rng, reference, mode):
    low, high = (-1, 1) if mode == "BIPOLAR" else (0, 3)
    found = certified(layer(rng, reference, mode=mode, low=low, high=high))
    assert [step["claims"][0]["by"] for step in found["steps"]] == ["thresholds"]
    assert failure(found) == ""


@pytest.fixture
def folder(rng, tmp_path):
    """The certificate of a layer, its checker and a file of C."""
    files = {"net.c": "int main(void);\n"}
    program = program_of(layer(rng))
    made = {**files, **certificate_files("net", program, planned(program), files)}
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run_checker(folder):
    command = [sys.executable, "-I", "net_check.py", "net.certificate.json"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def test_the_checker_runs_by_itself(folder):
    assert run_checker(folder).returncode == 0
    (folder / "net.c").write_text("int main(void) ;\n")
    found = run_checker(folder)
    assert (found.returncode, found.stderr) == (1, "AssertionError: net.c was changed\n")
    (folder / "net.certificate.json").write_text("{")
    assert run_checker(folder).returncode == 2


def test_the_checker_is_short_and_needs_numpy_alone():
    text = Path(checker.__file__).read_text("utf-8")
    assert len(text.splitlines()) <= 200
    imported = {line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import", "from"))}
    assert imported - set(sys.stdlib_module_names) == {"numpy"}
