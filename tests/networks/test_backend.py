"""The back end of ONNX: compiled C behind its interface, and the node tests of the onnx package through it."""

import os
import re
import unittest
import warnings

import numpy as np
import onnx.backend.test
import pytest
from onnx.backend.test.case.node import collect_testcases
from support.node_cases import QUANTIZED, REFUSED, SMALL_FLOATS
from support.onnx_files import model, node

from bitsynth.backend import Backend
from bitsynth.errors import SpecError

ASKED = int(os.environ.get("BITSYNTH_GRAPHS", "0"))
EVERY = 1 if ASKED else 12
"""Of the cases in floats each so manieth is compiled, all if BITSYNTH_GRAPHS is set."""
PARTS = 6


class InFloats(Backend):
    """Networks are what ONNX Runtime's formulas make of them: the scale of some quantizers depends on data."""

    @classmethod
    def prepare(cls, model, device="CPU", **options):
        return super().prepare(model, device, reference="onnxruntime")


class Cases:
    """Node tests of the onnx package, as its own runner has them, on the CPU."""

    def __init__(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner = onnx.backend.test.BackendTest(InFloats, __name__)
            self.models = {case.name: case.model for case in collect_testcases(None)}
        self.of = runner.test_cases["OnnxBackendNodeModelTest"]
        self.names = [n for n in unittest.TestLoader().getTestCaseNames(self.of) if n.endswith("_cpu")]

    def failures(self, names):
        """Why cases fail, by name."""
        found = {}
        for name in names:
            result = self.of(name).run()
            if result.errors or result.failures:
                (_, why), *_ = [*result.errors, *result.failures]
                found[name.removesuffix("_cpu")] = why.strip().splitlines()[-1]
        return found


@pytest.fixture(scope="module")
def cases():
    return Cases()


@pytest.fixture
def quickly(monkeypatch):
    """Networks are compiled without optimization: they run once."""
    monkeypatch.setattr("bitsynth.network.machine.FLAGS", ("-O0",))


def test_where_it_runs():
    relu = model([node("Relu", "x")], {"x": (1, 4)})
    assert Backend.supports_device("CPU")
    assert not Backend.supports_device("CUDA:0")
    assert Backend.is_compatible(relu)
    assert not Backend.is_compatible(relu, "CUDA")
    assert not Backend.is_compatible(model([node("Frob", "x")], {"x": (1, 4)}))
    with pytest.raises(SpecError, match="device 'CUDA': networks run on the CPU"):
        Backend.prepare(relu, "CUDA")
    with pytest.raises(SpecError, match="Frob the_Frob: no operator that is compiled"):
        Backend.prepare(model([node("Frob", "x")], {"x": (1, 4)}))


@pytest.mark.slow
def test_inputs_that_must_be_constants_are_those_of_the_run(quickly):
    onnx_model = model([node("Pow", "x n", "p"), node("Add", "p b")], {"x": (2,), "n": (1,)}, {"b": np.float32(1)})
    ready = Backend.prepare(onnx_model)
    x = np.array([2, 3], np.float32)
    for power in (2, 3):
        (got,) = ready.run([x, np.array([power], np.float32)])
        assert got.tolist() == [2.0**power + 1, 3.0**power + 1]
    (got,) = ready.run({"x": x, "n": np.array([2], np.float32)})
    assert got.tolist() == [5, 10]
    with pytest.raises(SpecError, match="3 inputs; the model has x, n"):
        ready.run([x, x, x])


@pytest.mark.slow
def test_a_model_without_inputs(quickly):
    (got,) = Backend.prepare(model([node("Relu", "c")], {}, {"c": np.array([-1, 2.5], np.float32)})).run([])
    assert got.tolist() == [0, 2.5]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_quantized_cases_of_onnx_pass(cases, quickly, part):
    """All 37 without small floats, and the 60 casts to and from 2 and 4 bits."""
    chosen = [n for n in cases.names if QUANTIZED.search(n) and not SMALL_FLOATS.search(n)]
    assert len(chosen) == 97
    assert cases.failures(chosen[part::PARTS]) == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_cases_in_floats(cases, quickly, part):
    """Of every operator that is read, but for the forms that are refused."""
    read = [n for n in cases.names if Backend.is_compatible(cases.models[n.removesuffix("_cpu")])]
    chosen = [n for n in read if not QUANTIZED.search(n) and not any(re.search(p, n) for p in REFUSED)]
    assert len(chosen) > 500
    assert cases.failures(chosen[part * EVERY :: PARTS * EVERY]) == {}
