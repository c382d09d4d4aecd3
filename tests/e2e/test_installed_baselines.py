"""The packages themselves on one small and one strided layer; their times are not judged."""

import subprocess
import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from bitsynth.bench.baselines.start import NEEDS, start
from bitsynth.host import features
from bitsynth.isa.load import load

pytestmark = pytest.mark.slow
LAYERS = ["C11", "C12"]
VARIANTS = {
    "torch": {"fp32", "int8_onednn", "int8_fbgemm"},
    "onnxruntime": {"fp32", "fp32_blocked", "int8"},
    "openvino": {"fp32", "int8"},
    "ncnn": {"fp32", "int8"},
}


@pytest.fixture(params=NEEDS)
def package(request):
    missing = [name for name in NEEDS[request.param] if find_spec(name) is None]
    if missing:
        pytest.skip(f"peers not installed: {', '.join(missing)}")
    return request.param


@pytest.mark.parametrize("threads", [1, 2])
def test_every_variant_is_right_and_timed(package, threads):
    with ExitStack() as stack:
        found = start(stack, [package], "avx512", threads, LAYERS, lambda message: None)
        assert found.left_out == {}
        assert {p.variant for p in found.baselines} == VARIANTS[package]
        for baseline in found.baselines:
            for layer in LAYERS:
                times = baseline.time(layer, 3)
                assert len(times) == 3
                assert min(times) > 0
    assert found.about[package]["version"]


HARNESS = """
import time
from contextlib import ExitStack
from bitsynth.bench.baselines.start import start
with ExitStack() as stack:
    print(start(stack, ["{}"], "avx512", 1, ["C11"], str).baselines[0].process.worker.child.pid, flush=True)
    time.sleep(600)
"""


def state(pid):
    """What Linux says of a process: T where it is stopped, Z where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def wait_for(pid, wanted):
    """Fail where the process does not get into the wanted state."""
    deadline = time.monotonic() + 60
    while (found := state(pid)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a stopped process with its parent")
def test_a_killed_benchmark_leaves_no_worker(package):
    with subprocess.Popen([sys.executable, "-c", HARNESS.format(package)], stdout=subprocess.PIPE) as harness:
        try:
            pid = int(harness.stdout.readline())
            wait_for(pid, "T")
        finally:
            harness.kill()
    wait_for(pid, "Z")


def test_a_cap_reaches_the_package(package):
    if not features.matches(load("avx2").table):
        pytest.skip("code needs a processor with avx2; this one lacks it")
    with ExitStack() as stack:
        found = start(stack, [package], "avx2", 1, ["C11"], lambda message: None)
    if package == "torch":
        assert found.about["torch"]["instructions"] == "AVX2"
    elif package == "openvino":
        assert found.about["openvino"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    else:
        assert "no switch" in found.left_out[package]
