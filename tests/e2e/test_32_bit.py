"""32-bit code from synthesis to results: words of 4 bytes, half of the arguments on the stack."""

import subprocess

import numpy as np
import pytest
from support.case_selection import quick

import bitsynth
from bitsynth import toolchain
from bitsynth.cli import main
from bitsynth.isa import architecture, load
from bitsynth.matmul import MatmulKernel
from bitsynth.run import qemu

pytestmark = pytest.mark.toolchains

ISA = "armv7_neon"
EMULATOR = architecture.find_architecture(load.load(ISA).table.arch).emulator


@pytest.fixture(scope="module")
def solved(request, tmp_path_factory):
    """The kernel of two widths, solved anew."""
    act_bits, w_bits = map(str, request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITSYNTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        assert main(["synth", "--isa", ISA, "--act-bits", act_bits, "--w-bits", w_bits, "--fresh"]) == 0
        return bitsynth.get_kernel(isa=ISA, act_bits=request.param[0], w_bits=request.param[1])


@pytest.fixture
def kernel(solved):
    """With a runner of its own."""
    return MatmulKernel(solved.proved_entry, solved.spec)


@pytest.mark.parametrize("runner", ["qemu", "unicorn"])
@pytest.mark.parametrize("solved", quick([(1, 1)], of=[(1, 1), (2, 2)]), indirect=True, ids=str)
def test_products_are_exact_on_32_bit_arm(kernel, runner, monkeypatch):
    if runner == "qemu" and qemu.find(EMULATOR.qemu) is None:
        pytest.skip("qemu is not on PATH")
    monkeypatch.setenv("BITSYNTH_RUNNER", runner)
    assert runner in kernel.runner.description
    rng = np.random.default_rng(0)
    for m, k, n in ((1, 1, 1), (3, 65, 9), (9, 576, 24), (2, 4608, 16)):
        a = rng.integers(0, 1 << kernel.spec.act.bits, (m, k))
        w = 2 * rng.integers(0, 1 << kernel.spec.wgt.bits, (k, n)) - (1 << kernel.spec.wgt.bits) + 1
        assert (kernel.matmul(a, w) == a @ w).all()
        most = np.full_like(a, a.max()), np.full_like(w, w.max())
        assert (kernel.matmul(*most) == most[0] @ most[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("solved", [(2, 1)], indirect=True, ids=str)
def test_every_compiler_builds_its_program(kernel):
    """Zig is left out, as it would build a whole libc first."""
    isa, program = load.load(ISA), qemu.find(EMULATOR.qemu)
    if program is None:
        pytest.skip("qemu is not on PATH")
    compilers = [compiler for compiler in toolchain.compilers(isa) if compiler.family != "zig"]
    assert compilers
    for compiler in compilers:
        path = toolchain.compile_for(isa, kernel.files, shared=False, compiler=compiler)
        assert subprocess.run([program, path], check=False).returncode == 0, compiler.name
