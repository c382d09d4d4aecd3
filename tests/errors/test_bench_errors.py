"""`bitsynth bench`: bad input, missing tools and features end in one message and an exit code."""

import importlib.util

import pytest

from bitsynth import paths
from bitsynth.host import features

KERNELS = ["bench", "kernels"]
LAYERS = ["bench", "resnet18"]
AVX2 = [*KERNELS, "--isa", "avx2", "--act-bits", "1", "--w-bits", "1"]
pytestmark = pytest.mark.usefixtures("user")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--isa", "sparc"], "unknown instruction set 'sparc'"),
        (["--isa", "avx2,"], "unknown instruction set ''"),
        (["--isa", "avx2", "--act-bits", "9"], "--act-bits: want bits from 1 to 8, such as 1-4 or 1,2, not '9'"),
        (["--isa", "avx2", "--w-bits", "1,"], "--w-bits: want bits from 1 to 8"),
        (["--isa", "avx2", "--w-bits", "two"], "--w-bits: want bits from 1 to 8"),
        (["--isa", "avx2", "--w-bits", "12"], "--w-bits: want bits from 1 to 8"),
        (["--isa", "avx2", "--act-bits", "7"], "no cached kernel A7W* for avx2"),
        (["--isa", "avx2", "--repeats", "0"], "'--repeats'"),
        (["--json"], "'--json'"),
    ],
)
def test_bad_arguments_are_refused(fails, argv, message):
    assert message in fails(2, *KERNELS, *argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--layers", "C1"], "--layers: unknown 'C1'; known: C2, C3"),
        (["--act-bits", ""], "--act-bits: want bits from 1 to 8"),
        (["--w-bits", "1,9"], "--w-bits: want bits from 1 to 8"),
        (["--baseline", "tvm"], "--baseline: unknown 'tvm'"),
        (["--form", "floats"], "--form: unknown 'floats'; known: sums, packed"),
        (["--weight-encoding", "bipolar,octal"], "unknown encoding 'octal'"),
        (["--w-bits", "1", "--weight-encoding", "ternary"], "no weights of 1 bits are ternary"),
        (["--device", "pi", "--form", "packed"], "with --device layers are measured in the form sums"),
        (["--isa", "sparc"], "unknown instruction set 'sparc'"),
    ],
)
def test_bad_arguments_of_layers(fails, argv, message):
    assert message in fails(2, *LAYERS, *argv)


def test_layers_are_not_timed_under_an_emulator(fails):
    other = "neon" if features.arch() == "x86_64" else "avx2"
    assert f"does not run {other}, and an emulator tells no time" in fails(2, *LAYERS, "--isa", other)


def test_no_kernel_of_a_set(fails, monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "shipped_kernels", lambda: tmp_path)
    message = "no cached kernel for avx2; `bitsynth synth --isa avx2 --act-bits 2 --w-bits 1` makes one"
    assert message in fails(2, *KERNELS, "--isa", "avx2")


@pytest.mark.skipif(features.arch() != "x86_64", reason="its compiler makes no code for x86")
def test_a_feature_that_is_missing_is_named(fails, monkeypatch):
    monkeypatch.setattr(features, "features", frozenset)
    assert "avx2 code needs a processor with avx2; this one lacks it" in fails(4, *AVX2)


def test_a_processor_that_runs_nothing(fails, monkeypatch):
    monkeypatch.setattr(features, "features", frozenset)
    assert "name one to be emulated with --isa" in fails(2, *KERNELS)


def test_a_missing_compiler_is_reported(fails, monkeypatch, tmp_path):
    monkeypatch.setenv("BITSYNTH_BUILD_CACHE", str(tmp_path / "build"))
    monkeypatch.setenv("BITSYNTH_CC_X86_64", "/no/such/compiler")
    assert "/no/such/compiler" in fails(4, *AVX2)


@pytest.mark.parametrize("package", ["matplotlib"])
def test_a_package_that_is_missing(fails, monkeypatch, tmp_path, package):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == package else real(name, *rest))
    message = fails(4, *AVX2, "--plot", str(tmp_path / "plot"))
    assert f"the package {package} is not installed: pip install 'bitsynth[bench]'" in message


def test_files_that_cannot_be_written(fails, tmp_path):
    (tmp_path / "file").write_text("")
    assert "name another file" in fails(4, *AVX2, "--json", str(tmp_path / "file" / "out.json"))
    assert "name another file" in fails(4, *AVX2, "--plot", str(tmp_path / "file" / "plot"))
    for argv in ([*AVX2, "--json"], [*LAYERS, "--json"], [*LAYERS, "--csv"]):
        assert f"{tmp_path} is a folder; name another file" in fails(4, *argv, str(tmp_path))
