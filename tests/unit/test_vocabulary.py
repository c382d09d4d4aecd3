"""One name, one meaning: classes are defined once, private words name nothing, the glossary points at what exists."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import bitsynth

PACKAGE = Path(bitsynth.__file__).parent
GLOSSARY = PACKAGE.parent / "docs" / "concepts" / "glossary.md"
ALIAS = re.compile(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")


BANNED = {"told", "said", "unsaid", "stairs", "staircase", "turns", "wiring", "come", "beside"}
"""Words of a private language: no name has one of them."""
BARE = {"most", "few", "near", "far", "apart", "around", "ample"}
"""Constants are not called so alone: a name says what it bounds."""
KEYS_OF_FILES = {"prefetch_turns"}
"""Fields and arguments that are keys of files."""
EMPTY = {"found", "made", "told", "said", "come", "two", "several", "much", "turn", "turns", "thing", "things"}
"""Local variables, parameters and fields are not called so: the name says nothing of what it holds."""
NOT_VERBS = {"A", "An", "How", "Its", "Likewise", "Of", "One", "The", "This", "Two", "What", "Where", "Whether", "Why"}
"""Docstrings of functions do not begin so: they say what the function does."""


def word_set(text):
    """Return the words of a text."""
    return {*text.split()}


IRREGULAR = word_set(
    """
    begun bent bought broken brought built caught chosen dealt done drawn driven fed found given gone grown held
    hidden kept known laid left lost made meant met paid seen sent shown sold spent spoken stood sunk taken
    thrown told understood unknown woken won written
    """
)
"""Participles that do not end in "ed"; those that are infinitives too, such as read, split and bound, are left out."""
VERBS = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}
"""Verbs that end in "ed"."""
NOUN_PHRASES = word_set(
    """
    added_terms cached_entry cached_kernel cached_kernels computed_jump emulated_cpu expected_cycles
    fixed_point_factor fixed_point_factors fixed_point_spec fixed_value forced_compiler gated_spec given_shape
    mirrored_grid moved_grid moved_type packed_words proved_cycles recorded_versions reduced_axes reduced_shape
    rescaled_grid rounded_grid scaled_text scaled_type scheduled_kernel shared_bytes shared_files shared_numbers
    shared_pool shared_program shared_weights shipped_kernels shipped_schedules signed_thresholds stored_ctype
    stored_kernels stored_type timed_kernel transposed_axes unknown_accumulators unknown_byte unknown_lanes
    unknown_set_error
    """
)
"""Functions that are named for what they return: a noun with a participle before it."""
LANE_FUNCTIONS = {"flushed", "reached"}
"""Functions of the lane language, which instruction sets call by these names (`docs/reference/isa-spec.md`)."""


MAYBE_BANNED = re.compile(f"(?i:{'|'.join(BANNED)})|{'|'.join(BARE).upper()}|known")
MAYBE_EMPTY = re.compile(rf"\b_*(?:{'|'.join(EMPTY)})_*\b|\bone\s*[:,=)]")
MAYBE_PARTICIPLE = re.compile(rf"def _*(?:[a-z]*ed|bound|{'|'.join(IRREGULAR)})[_(]")
"""A text without a match has no such name: most files are not parsed, which takes seconds for all."""


def walk(tree):
    """Yield a node and all below it, without contexts and operators, in a fraction of the time of `ast.walk`."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for field in node._fields:
            value = getattr(node, field, None)
            if type(value) is list:
                left += [x for x in value if isinstance(x, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:
                left.append(value)


def names(text):
    """Every public class of a module's text, nested ones too, and its public aliases of types."""
    tree = ast.parse(text)
    yield from (n.name for n in walk(tree) if isinstance(n, ast.ClassDef) and n.name[0] != "_")
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


def words(name):
    """The words of a name, in small letters."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def defined(nodes):
    """Yield the line and the name of each class, function, parameter and field, and of each name of a module."""
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.lineno, node.name
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        if isinstance(node, ast.ClassDef | ast.Module):
            yield from ((line, name) for statement in node.body for line, name in assigned(statement))


def assigned(statement):
    """Yield the line and the name of each variable that an assignment sets."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    for target in targets:
        for node in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(node, ast.Name):
                yield statement.lineno, node.id


def memos(nodes):
    """Yield the line of each dictionary called `known`: a memo, of which nobody knows what it is for."""
    for node in nodes:
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
            name = (
                node.arg if isinstance(node, ast.arg) else getattr(node.target, "id", getattr(node.target, "attr", ""))
            )
            if name.lstrip("_") == "known" and re.match(r"(default)?dict\b|Mutable", ast.unparse(node.annotation)):
                yield node.lineno


def banned(text):
    """Yield the line of each name that has a banned word, or is a word that needs another, with the name."""
    nodes = list(walk(ast.parse(text))) if MAYBE_BANNED.search(text) else []
    for line, name in defined(nodes):
        bare = name.isupper() and name.strip("_").lower() in BARE
        if name not in KEYS_OF_FILES and (bare or BANNED & words(name)):
            yield line, name
    yield from ((line, "known") for line in memos(nodes))


def locals_of(function):
    """Yield the line and the name of each parameter and each variable that a function's text sets, lambdas included."""
    for node in walk(function):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def empty_locals(text):
    """Yield the line and the name of each field and local name that says nothing.

    `one` is a parameter only where `other` is.
    """
    for node in walk(ast.parse(text)) if MAYBE_EMPTY.search(text) else ():
        if isinstance(node, ast.ClassDef):
            fields = (x for statement in node.body for x in assigned(statement))
            yield from ((line, name) for line, name in fields if name.strip("_") in EMPTY - {"found"})
        if isinstance(node, ast.FunctionDef):
            yield from ((line, name) for line, name in locals_of(node) if name.strip("_") in EMPTY)
            parameters = {arg.arg for arg in walk(node.args) if isinstance(arg, ast.arg)}
            if "one" in parameters and "other" not in parameters:
                yield node.lineno, "one"


def verbless(text):
    """Yield the line and the first word of each function's docstring that begins with a noun; properties may."""
    for node in walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and (docstring := ast.get_docstring(node)):
            first = re.split(r"[\s,:;.]", docstring, maxsplit=1)[0]
            if first in NOT_VERBS and not any("property" in ast.unparse(x) for x in node.decorator_list):
                yield node.lineno, first


def participles(text):
    """Yield the line and the name of each function, properties apart, that is called by a participle."""
    for node in walk(ast.parse(text)) if MAYBE_PARTICIPLE.search(text) else ():
        if isinstance(node, ast.FunctionDef) and not any("property" in ast.unparse(x) for x in node.decorator_list):
            name = node.name.strip("_")
            first = name.partition("_")[0]
            is_participle = name == "bound" or first in IRREGULAR or (first.endswith("ed") and first not in VERBS)
            if is_participle:
                yield node.lineno, node.name


def hits(path, names=banned):
    """Return where a file has such names, as PATH:LINE: NAME."""
    return [f"{path.relative_to(PACKAGE.parent)}:{line}: {name}" for line, name in sorted(set(names(path.read_text())))]


def banned_in_c(text):
    """Yield the line of each word of the private language in C, CMake or shell, but for C's comments, with the word."""
    code = re.sub(r"/\*.*?\*/|\{#.*?#\}", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(code.split("\n"), 1):
        yield from ((number, word) for word in re.findall("[A-Za-z]+", line) if word.lower() in BANNED)


def test_private_words_name_nothing_in_c():
    paths = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".c", ".h", ".j2", ".sh"})
    assert len(paths) > 50
    assert [hit for path in paths for hit in hits(path, banned_in_c)] == []
    assert list(banned_in_c("/* It is told. */\nsize_t MAX_TURNS;\n# It is told.")) == [(2, "TURNS"), (3, "told")]


def test_private_words_name_nothing_in_benchmarks():
    paths = sorted((PACKAGE.parent / "benchmarks").rglob("*.py"))
    assert len(paths) > 30
    assert [hit for path in paths for hit in hits(path)] == []


MAYBE_PRIVATE = re.compile(rf"\b(?:{'|'.join(BANNED | {'made'})})\s*(?:[,:=)]|in\b)")


def private_locals(text):
    """Yield the line and the name of each parameter and local variable that is a banned word, or `made`."""
    for node in walk(ast.parse(text)) if MAYBE_PRIVATE.search(text) else ():
        if isinstance(node, ast.FunctionDef):
            yield from ((line, name) for line, name in locals_of(node) if name in BANNED | {"made"})


def test_private_words_name_no_local_of_benchmarks_and_tests():
    root = PACKAGE.parent
    paths = sorted([*(root / "benchmarks").rglob("*.py"), *(root / "tests").rglob("*.py")])
    assert len(paths) > 300
    assert [hit for path in paths for hit in hits(path, private_locals)] == []
    assert sorted(private_locals("def f(told):\n    for made in told: ...")) == [(1, "told"), (2, "made")]


def test_private_words_name_nothing():
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 100
    assert [hit for path in paths for hit in hits(path)] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def told(): ...", "told"),
        ("def f(*, may_come): ...", "may_come"),
        ("class Unsaid(Exception): ...", "Unsaid"),
        ("class C:\n    beside: int = 0", "beside"),
        ("_FEW, _MOST = 1, 2", "_FEW"),
        ("_NEAR = 1", "_NEAR"),
        ("def f():\n    known: dict[str, int] = {}", "known"),
        ("def f(known: dict[str, int]): ...", "known"),
    ],
)
def test_a_banned_name_is_found(text, name):
    assert name in [found for _, found in banned(text)]


def test_functions_are_verbs():
    allowed, wrong, named = NOUN_PHRASES | LANE_FUNCTIONS, [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        names = list(participles(path.read_text()))
        wrong += [f"{path}:{line}: {name}" for line, name in names if name.strip("_") not in allowed]
        named |= {name.strip("_") for _, name in names}
    assert wrong == []
    assert allowed <= named, "names that are allowed, and that no function has"


def test_a_participle_is_found():
    text = "def shown(): ...\nclass C:\n    def _made_of(self):\n        def carried(): ..."
    assert sorted(participles(text)) == [(1, "shown"), (3, "_made_of"), (4, "carried")]
    others = "def feed(): ...\ndef unbound(): ...\ndef read(): ...\ndef bound_sums(): ..."
    assert list(participles(f"@cached_property\ndef shown(): ...\n{others}")) == []


def test_local_names_say_what_they_hold():
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 100
    assert [hit for path in paths for hit in hits(path, empty_locals)] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f():\n    found = 1", "found"),
        ("def f():\n    for made in x: ...", "made"),
        ("def f():\n    return [turn for turn in x]", "turn"),
        ("def f():\n    if (several := x): ...", "several"),
        ("def f():\n    return lambda said: said", "said"),
        ("def f(*, much): ...", "much"),
        ("class C:\n    def f(self, one): ...", "one"),
        ("class C:\n    made: int = 0", "made"),
    ],
)
def test_an_empty_local_name_is_found(text, name):
    assert name in [local for _, local in empty_locals(text)]


def test_docstrings_of_functions_begin_with_a_verb():
    paths = sorted(PACKAGE.rglob("*.py"))
    assert [hit for path in paths for hit in hits(path, verbless)] == []
    text = 'def f():\n    """Whether it holds."""\n@property\ndef g():\n    """The sum."""'
    assert list(verbless(text)) == [(1, "Whether")]


def test_other_local_names_are_not_empty():
    assert list(empty_locals("found = 1\ndef f(one, other):\n    x.found = one.made(found=other)")) == []


def test_other_names_are_not_banned():
    text = "MAX_FEW_BITS = NEAREST = 1\ndef outcome(known: set[str], prefetch_turns: int, income: int): ..."
    assert list(banned(text)) == []


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
