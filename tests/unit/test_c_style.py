"""All C is laid out as .clang-format says: the runtime's, the examples', and what is emitted."""

import subprocess
import sysconfig
from pathlib import Path

from bitsynth import paths

ROOT = Path(__file__).parents[2]
CLANG_FORMAT = Path(sysconfig.get_path("scripts")) / "clang-format"


def changes(files):
    """What clang-format would change in these C files."""
    style = f"--style=file:{ROOT / '.clang-format'}"
    command = [str(CLANG_FORMAT), style, "--dry-run", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_the_runtime():
    assert changes(sorted(paths.runtime().glob("*.[ch]"))) == ""


def test_the_examples():
    assert changes(sorted((ROOT / "examples").glob("*/*.c"))) == ""


def test_a_change_is_seen(tmp_path):
    (tmp_path / "wide.c").write_text("int   wide;\n")
    assert "wide.c:1:4" in changes([tmp_path / "wide.c"])
