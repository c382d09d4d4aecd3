"""One name, one meaning: public classes are defined once, and the glossary points at what exists."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import bitsynth

PACKAGE = Path(bitsynth.__file__).parent
GLOSSARY = PACKAGE.parent / "docs" / "concepts" / "glossary.md"
ALIAS = re.compile(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")


def names(text):
    """Every public class of a module's text, nested ones too, and its public aliases of types."""
    tree = ast.parse(text)
    yield from (n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name[0] != "_")
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (t.id for t in targets if isinstance(t, ast.Name) and ALIAS.fullmatch(t.id))


def twice(texts):
    """Names that are defined more than once, with the modules that define them."""
    found = defaultdict(list)
    for module, text in texts.items():
        for name in names(text):
            found[name].append(module)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_a_public_class_is_defined_once():
    texts = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    assert "kernel/program.py" in texts
    assert twice(texts) == {}


@pytest.mark.parametrize(
    "again", ["class Kernel: ...", "Kernel = int | str", "Kernel: type = int", "def f():\n class Kernel: ..."]
)
def test_a_second_definition_is_found(again):
    assert twice({"one": "class Kernel: ...\nMOST = 8\n_Own = int", "other": f"{again}\nMOST = 8\n_Own = str"}) == {
        "Kernel": ["one", "other"]
    }


def glossary():
    """Each term of the glossary with the paths and the names that its line has."""
    for line in GLOSSARY.read_text().splitlines()[7:]:
        _, term, meaning, _, where, _ = (cell.strip() for cell in line.split("|"))
        places = [(path, re.findall(r"`(\w+)`", rest)) for path, rest in re.findall(r"`([\w/]+\.py)`: ([^;]*)", where)]
        yield term, meaning, places


def test_the_glossary_points_at_what_exists():
    terms = list(glossary())
    assert [term for term, _, _ in terms] == sorted((term for term, _, _ in terms), key=str.casefold)
    for term, meaning, places in terms:
        assert meaning.endswith("."), term
        assert places, term
        for path, defined in places:
            text = (PACKAGE / path).read_text()
            lacking = [n for n in defined if not re.search(rf"^(class|def) {n}\b|^{n}\b.* = ", text, re.MULTILINE)]
            assert defined, term
            assert not lacking, f"{term}: {path} does not define {lacking}"
