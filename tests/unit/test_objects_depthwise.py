"""Machine code of depthwise kernels, compared with their proved programs; and kernels that are wrong."""

import json
import subprocess

import pytest

from bitsynth.emit.depthwise import DepthwiseSource
from bitsynth.errors import Refuted
from bitsynth.host import features
from bitsynth.isa.load import load
from bitsynth.network.machine_code.depthwise import keeps_channels_apart
from bitsynth.objects.depthwise import DepthwiseFunction, DepthwiseSizes, prove_depthwise
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.toolchain import compilers

pytestmark = pytest.mark.toolchains

SHIPPED = sorted(
    path.stem for path in DEPTHWISE.every() if load(DEPTHWISE.read(path).program.isa).table.arch == "x86_64"
)
NARROW, BYTES = "bs_dw_a4_w8_s32_avx2_32x2", "bs_dw_a8_w8_s32_avx2_32x2"
"""Kernels that flush every eight steps, and after each."""


@pytest.fixture(autouse=True)
def packages():
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")


def function_of(name, order=0):
    """The function of a kernel with its flush number `order`."""
    return DepthwiseFunction(name, DEPTHWISE.load_named(name).artifact.orders[order])


def compiled(folder, function, family="gcc", flags=("-O2",), edit=lambda text: text):
    """The object of a kernel's C, edited."""
    source = DepthwiseSource(DEPTHWISE.load_named(function.name), function.order)
    found = [x for x in compilers(load(function.program.isa)) if x.family == family]
    if features.arch() != "x86_64" or not found:
        pytest.skip(f"needs {family} for x86_64")
    (folder / "k.c").write_text(edit(source.source))
    (folder / f"{source.name}.h").write_text(source.header)
    command = [*found[0].command, "-std=c11", "-fPIC", *flags, *source.needs.cc_flags, "-c", "k.c", "-o", "k.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "k.o"


def replaced(old, new):
    """An edit that puts a text in each place of another, which must be there."""

    def edit(text):
        assert old in text
        return text.replace(old, new)

    return edit


@pytest.mark.parametrize("name", [NARROW, BYTES])
def test_a_kernel_is_proved(tmp_path, name):
    function = function_of(name)
    proof = prove_depthwise(compiled(tmp_path, function), function)
    assert {size.pixels for size in proof.sizes if isinstance(size, DepthwiseSizes)} >= set(range(9))
    assert proof.registers > 200
    assert proof.loops is None


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SHIPPED)), ids=SHIPPED)
def test_every_kernel_is_proved_by_a_compiler_in_an_order(tmp_path, number):
    function = function_of(SHIPPED[number], number % 5)
    family, flag = ("gcc", "clang")[number % 2], ("-O2", "-O3")[number // 2 % 2]
    proof = prove_depthwise(compiled(tmp_path, function, family, (flag,)), function)
    assert proof.registers > 200
    assert keeps_channels_apart(function)


MUTANTS = {
    "weights of another channel": replaced("weight + 32", "weight + 31"),
    "another tap": replaced("tap[1] + at + apart", "tap[0] + at + apart"),
    "another pixel": replaced("tap[0] + at + 2 * apart", "tap[0] + at + apart"),
    "another unit": replaced("at = unit * 32", "at = 0 * unit"),
    "weights of the next unit": replaced("w += steps * 64", "w += (steps - 1) * 64"),
    "numbers of the next unit": replaced("start += 32", "start += 0"),
    "the last pixel": replaced("; p < pixels; ++p", "; p + 1 < pixels; ++p"),
    "a flush that starts again": replaced("from = to;", "from = start;"),
    "a flush that is late": replaced("left < 8 ? left : 8", "left < 9 ? left : 9"),
    "the steps of a block": replaced("left -= count;", "left -= 8 < left ? 8 : left; count -= count == 8;"),
    "sums of a pixel": replaced("from + 2 * from_ld", "from + from_ld"),
    "where sums go": replaced("(to + ldc + 8,", "(to + ldc + 0,"),
    "signs of accumulators": replaced("_mm256_cvtepi16_epi32", "_mm256_cvtepu16_epi32"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", MUTANTS)
def test_a_wrong_kernel_is_refused(tmp_path, what):
    function = function_of(NARROW)
    path = compiled(tmp_path, function, edit=MUTANTS[what])
    with pytest.raises(Refuted, match=r"k\.o, bs_dw_\w+: with pixels"):
        prove_depthwise(path, function)


def test_another_order_of_sums_is_refused(tmp_path):
    path = compiled(tmp_path, function_of(NARROW))
    with pytest.raises(Refuted, match="is not what the proved program computes"):
        prove_depthwise(path, function_of(NARROW, 1), sizes=[DepthwiseSizes(1, 1, 1, 32, 32)])


def test_a_program_that_mixes_channels_does_not_keep_them_apart(monkeypatch):
    """The function that decides is asked for a flush to one order, and for one to another."""
    function = function_of(NARROW)
    assert keeps_channels_apart.__wrapped__(function)
    other = function_of(NARROW, 1).order
    monkeypatch.setattr("bitsynth.objects.depthwise.DepthwiseRun.flush", function.program.flushes[0])
    assert not keeps_channels_apart.__wrapped__(DepthwiseFunction(NARROW, other))


def test_the_command_proves_what_a_compiler_makes(ended, tmp_path):
    path = compiled(tmp_path, function_of(BYTES))
    facts = json.loads(ended(0, "verify", BYTES, "--object", str(path), "--json")[0])
    assert (facts["all_sizes"], facts["packers"]) == (False, [])
    assert facts["sizes"][0] == {"pixels": 0, "units": 1, "steps": 2, "apart": 32, "ldc": 32}
    assert "for these" in ended(0, "verify", BYTES, "--object", str(path), "--strict")[0]
    assert "has no function" in ended(2, "verify", NARROW, "--object", str(path))[1]
    assert (
        "objects of arm cannot be proved"
        in ended(2, "verify", "bs_dw_a4_w8_s32_armv7_neon_16x1", "--object", str(path))[1]
    )
