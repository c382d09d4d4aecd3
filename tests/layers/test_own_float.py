"""The float convolution of boards, timed here beside layers on Arm."""

import numpy as np
import pytest

from bitsynth.bench import float_convolution, layers, low_bit_layers
from bitsynth.bench.call_times import LocalSubject
from bitsynth.cli import main
from bitsynth.device import program
from bitsynth.errors import Refuted
from bitsynth.host import placement
from bitsynth.host.placement import native_sets

pytestmark = pytest.mark.toolchains


@pytest.fixture(scope="module")
def isa():
    return native_sets()[0]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_layers_are_called_as_often_as_asked(isa, threads):
    found = float_convolution.own_float(isa, threads, ["C11", "C12"])
    assert (found.name, found.kind, list(found.calls)) == ("bitsynth fp32", "fp32", ["C11", "C12"])
    assert len(found.time("C11", 3)) == 3


@pytest.mark.slow
def test_arithmetic_of_this_process_stays_exact(isa):
    """Code compiled for unsafe arithmetic is loaded here; so are proofs, which calculate with denormal numbers."""
    float_convolution.own_float(isa, 1, ["C11"])
    assert np.array([1e-40], np.float32) * np.float32(1) > 0


def test_a_wrong_one_is_refuted(isa, monkeypatch):
    files = program.float_files()
    wrong = files["bs_fp32.c"].replace("sum[r][1] += right", "sum[r][1] -= right")
    assert wrong != files["bs_fp32.c"]
    monkeypatch.setattr(float_convolution, "float_files", lambda: files | {"bs_fp32.c": wrong})
    with pytest.raises(Refuted, match="C11: the float convolution is wrong"):
        float_convolution.own_float(isa, 1, ["C11"])


@pytest.mark.parametrize(("isa", "floats"), [("neon", ["bitsynth fp32"]), ("avx2", [])])
def test_it_is_beside_layers_on_arm(monkeypatch, isa, floats):
    class Enough(Exception):
        pass

    def against(isa, threads, mine, *_):
        raise Enough([subject.name for subject in mine])

    monkeypatch.setattr(placement, "require_native", lambda table: None)
    monkeypatch.setattr(float_convolution, "own_float", lambda *_: LocalSubject("bitsynth fp32", "fp32", {}, 1))
    monkeypatch.setattr(low_bit_layers, "subjects", lambda *_: [])
    monkeypatch.setattr(layers, "against_baselines", against)
    with pytest.raises(Enough) as found:
        main(["bench", "resnet18", "--isa", isa, "--layers", "C11"])
    assert found.value.args[0] == floats
