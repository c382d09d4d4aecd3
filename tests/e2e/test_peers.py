"""The packages themselves on one small and one strided layer; what they take is not judged."""

from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from bitsynth.bench.peers.start import NEEDS, start
from bitsynth.build import host
from bitsynth.isa.load import load

pytestmark = pytest.mark.slow
LAYERS = ["C11", "C12"]
VARIANTS = {"torch": {"fp32", "int8_onednn", "int8_fbgemm"}, "onnxruntime": {"fp32", "int8"}}


@pytest.fixture(params=NEEDS)
def package(request):
    missing = [name for name in NEEDS[request.param] if find_spec(name) is None]
    if missing:
        pytest.skip(f"peers not installed: {', '.join(missing)}")
    return request.param


@pytest.mark.parametrize("threads", [1, 2])
def test_every_variant_is_right_and_timed(package, threads):
    with ExitStack() as stack:
        found = start(stack, [package], "avx512", threads, LAYERS, lambda said: None)
        assert found.left_out == {}
        assert {p.variant for p in found.peers} == VARIANTS[package]
        for peer in found.peers:
            for layer in LAYERS:
                times = peer.time(layer, 3)
                assert len(times) == 3
                assert min(times) > 0
    assert found.about[package]["version"]


def test_a_cap_reaches_the_package(package):
    if not host.matches(load("avx2").table):
        pytest.skip("code needs a processor with avx2; this one lacks it")
    with ExitStack() as stack:
        found = start(stack, [package], "avx2", 1, ["C11"], lambda said: None)
    if package == "torch":
        assert found.about["torch"]["instructions"] == "AVX2"
    else:
        assert "no switch" in found.left_out["onnxruntime"]
