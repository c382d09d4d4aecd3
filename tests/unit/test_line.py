"""The order of the folders is a contract: each imports only those below it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bitsynth

pytestmark = pytest.mark.slow
"""It needs the extra `lint`."""

PACKAGE = Path(bitsynth.__file__).parent
CONTRACT = PACKAGE.parent / "pyproject.toml"


def lint(folder):
    """What the linter says of the package in `folder`, and its exit code."""
    command = [Path(sys.executable).parent / "lint-imports", "--config", folder / "pyproject.toml", "--no-cache"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path):
    """The package and its contract, to be spoiled."""
    python = shutil.ignore_patterns("__pycache__", "*.c", "*.h", "*.j2", "_data")
    shutil.copytree(PACKAGE, tmp_path / "bitsynth", ignore=python)
    shutil.copy(CONTRACT, tmp_path)
    return tmp_path


def test_imports_go_one_way(copy):
    code, output = lint(copy)
    assert code == 0, output
    assert "2 kept, 0 broken" in output


@pytest.mark.parametrize(
    ("module", "line", "message"),
    [
        ("isa/load.py", "import bitsynth.schedule.cost", "bitsynth.isa is not allowed to import bitsynth.schedule"),
        ("kernel/program.py", "def f():\n    from bitsynth.proof import checker", "bitsynth.kernel is not allowed"),
        ("stray.py", "", "stray"),
    ],
)
def test_a_back_edge_and_a_loose_module_are_refused(copy, module, line, message):
    with (copy / "bitsynth" / module).open("a") as file:
        file.write(f"\n{line}\n")
    code, facts = lint(copy)
    assert code == 1
    assert message in facts
