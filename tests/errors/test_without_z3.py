"""Where Z3 is not installed: what needs it says how to get it, everything else works."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import bitsynth
from bitsynth.cli import checks
from bitsynth.errors import INSTALL_Z3, ToolError

ROOT = Path(__file__).parents[2]
SYNTH = "synth --isa neon --act-bits 2 --w-bits 1"
NAME = "bs_mm_a2u_w1b_s32_neon_6x64x4"
NEED_IT = (
    f"{SYNTH} --fresh",
    "synth --isa neon --act-bits 6 --w-bits 3",
    f"verify {NAME}",
    f"verify {NAME} --no-minimality",
    "explore --isa neon --act-bits 1 --w-bits 1 --jobs 1",
)
DO_WITHOUT = (SYNTH, f"show {NAME}", f"verify {NAME} --no-z3", "isa list")
RUN = """
import contextlib, io, json, sys
from importlib import metadata
sys.modules["z3"] = None
import bitsynth
from bitsynth.cli import main
assert bitsynth.get_kernel("neon", 2, 1).source
assert bitsynth.Conv2d and bitsynth.Dense
import bitsynth.bench.kernels, bitsynth.bench.resnet18, bitsynth.cli.checks
import bitsynth.conformance.check, bitsynth.tune.loop
done = {}
for command in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(command.split())
        except BaseException as error:
            code = repr(error)
    done[command] = code, out.getvalue(), err.getvalue()
json.dump(done, sys.stdout)
"""


@pytest.fixture(scope="module")
def without_z3(tmp_path_factory):
    """What each command did in a process that cannot import Z3: exit code, output and messages."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITSYNTH_CACHE", str(folder))
        commands = json.dumps([*NEED_IT, *DO_WITHOUT])
        process = subprocess.run(
            [sys.executable, "-c", RUN], input=commands, capture_output=True, text=True, check=False
        )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("command", NEED_IT)
def test_what_needs_z3_says_how_to_get_it(without_z3, command):
    code, out, err = without_z3[command]
    assert (code, out) == (ToolError.exit_code, "")
    assert err.startswith("error: finding and proving kernels needs Z3")
    assert err.endswith(f"{INSTALL_Z3}\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", DO_WITHOUT)
def test_what_does_without_z3(without_z3, command):
    code, out, err = without_z3[command]
    assert (code, err) == (0, "")
    assert out


def test_z3_has_one_door():
    """Another import would be a ModuleNotFoundError there."""
    files = Path(bitsynth.__file__).parent.rglob("*.py")
    importing = {p.name for p in files if re.search(r"^\s*(import|from) z3\b", p.read_text(), re.MULTILINE)}
    assert importing == {"z3.py"}


def wanted(**system):
    """The versions of Z3 that pip may install on a system, by the project's own declaration."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [r for r in map(Requirement, project["dependencies"]) if r.name == "z3-solver"]
    return [r.specifier for r in found if r.marker is None or r.marker.evaluate(system)]


def test_pip_gets_z3_as_a_wheel():
    """The last wheel for AArch64 that does without glibc 2.38 is of version 4.15.4; 32-bit Arm has none."""
    for machine in ("x86_64", "arm64", "AMD64"):
        (versions,) = wanted(platform_machine=machine)
        assert "4.15.4.0" in versions
        assert "5.4.0.0" in versions
        assert versions == SpecifierSet(INSTALL_Z3.partition("z3-solver")[2].rstrip("'"))
    (versions,) = wanted(platform_machine="aarch64")
    assert list(versions.filter(["4.15.3.0", "4.15.4.0", "4.15.8.0", "4.16.0.0", "5.4.0.0"])) == ["4.15.4.0"]
    for machine in ("armv6l", "armv7l", "armv8l"):
        assert wanted(platform_machine=machine) == []
    assert INSTALL_Z3 in {advice for name, _, advice in checks._PACKAGES if name == "z3-solver"}
