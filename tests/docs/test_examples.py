"""Every example runs, by the commands of its README."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.markdown_blocks import ROOT, blocks

from bitsynth import toolchain
from bitsynth.host import features
from bitsynth.isa import load

EXAMPLES = {p.parent.name: p.parent for p in sorted((ROOT / "examples").glob("*/README.md"))}


def run(name, folder):
    """What the commands print, in a copy of the example, with caches of their own but for compiled code."""
    example = shutil.copytree(EXAMPLES[name], folder / name)
    (commands,) = blocks(EXAMPLES[name] / "README.md", "sh")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BITSYNTH_BUILD_CACHE": str(toolchain.cache_folder()),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    environment.pop("BITSYNTH_CACHE", None)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands.text],
        cwd=example,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def need_avx2():
    if not features.matches(load.load("avx2").table):
        pytest.skip("avx2 code needs a processor with it; this one lacks it")


def test_every_example_has_a_test():
    assert set(EXAMPLES) == {"fashion", "kernel", "layer", "python"}


@pytest.mark.slow
@pytest.mark.toolchains
def test_a_kernel_in_c(tmp_path):
    need_avx2()
    if not shutil.which("cc"):
        pytest.skip("gcc does not compile for x86_64 here")
    assert run("kernel", tmp_path).endswith("10 x 70 sums of 100 products: as the plain loop has them\n")


@pytest.mark.slow
@pytest.mark.toolchains
def test_a_layer_in_c_with_cmake(tmp_path):
    need_avx2()
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    out = run("layer", tmp_path)
    assert "100% tests passed, 0 tests failed out of 1" in out
    assert "28 x 28 x 32 results, the first is " in out


@pytest.mark.slow
def test_a_network_in_python(tmp_path):
    assert "\nscores [" in run("python", tmp_path)


@pytest.mark.slow
@pytest.mark.toolchains
def test_a_trained_network_in_c(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    out = run("fashion", tmp_path)
    assert "18,377,600 MAC; weights 39,104 bytes packed" in out
    assert "100% tests passed, 0 tests failed out of 1" in out
    assert out.endswith("the greatest is number 9\n")
