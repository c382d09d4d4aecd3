"""No Python names an instruction set or a processor architecture: both are data."""

import ast
import re
from pathlib import Path

import pytest

import bitsynth
from bitsynth.isa import architecture, load

FILES = sorted(Path(bitsynth.__file__).parent.rglob("*.py"))
NAMES = {
    *load.names(),
    *architecture.load_architectures(),
    *(m for a in architecture.load_architectures().values() for m in a.machines),
}
PATTERN = re.compile(rf"(?<![^\W_])({'|'.join(sorted(NAMES, key=len, reverse=True))})(?![^\W_])", re.IGNORECASE)
KERNEL = re.compile(r"\bbs_mm_\w+")
"""A kernel's name, given as an example."""
HELP = {"help", "epilog", "metavar"}


def said(tree):
    """The nodes of docstrings and of help texts, which may give examples."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        if isinstance(node, ast.keyword) and node.arg in HELP:
            yield from ast.walk(node.value)


def words(node):
    """The identifiers and strings of one node of code."""
    for field in ("id", "attr", "arg", "name", "asname", "module", "value"):
        text = getattr(node, field, None)
        if isinstance(text, str | bytes):
            yield text if isinstance(text, str) else text.decode(errors="replace")


def named(source):
    """(line, name) of every instruction set and architecture in `source`, examples apart."""
    if not PATTERN.search(source):
        return
    tree = ast.parse(source)
    free = set(map(id, said(tree)))
    for node in ast.walk(tree):
        if id(node) not in free:
            for text in words(node):
                for match in PATTERN.finditer(KERNEL.sub("", text)):
                    yield getattr(node, "lineno", 0), match[1]


def test_there_are_names_to_look_for():
    assert {"neon", "avx2", "armv7_neon", "aarch64", "x86_64", "arm"} <= NAMES
    assert len(FILES) > 50


@pytest.mark.parametrize(
    "source",
    [
        'if isa == "neon": pass',
        "from x import neon_tables",
        "AVX2 = 1",
        "def run_on_aarch64(): pass",
        "f(arm=1)",
        'f"{x}-linux-arm64"',
        "table.arm",
        'x = b"NEON"',
        'x = {"x86_64": 1}',
    ],
)
def test_a_name_in_code_is_seen(source):
    assert list(named(source))


@pytest.mark.parametrize(
    "source",
    [
        '"""Of NEON."""',
        'X = 1\n"""As on aarch64."""',
        'f(help="neon or avx2")',
        'raise E("one looks like bs_mm_a2u_w1b_s32_neon_4x8x64")',
        "# neon",
        "warm = charm = 1",
    ],
)
def test_examples_are_let_through(source):
    assert not list(named(source))


def test_no_code_names_one():
    assert {path.name: found for path in FILES if (found := list(named(path.read_text(encoding="utf-8"))))} == {}
