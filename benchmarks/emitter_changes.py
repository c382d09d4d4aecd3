"""Lists changes of the sources of C: of a line of a template or of C, of an emitter's Python, of an instruction's text.

A change is made in the process that emits, which must be one of its own: `Change.make` replaces functions and classes
of modules, and texts of templates.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import jinja2

from bitsynth.emit import render, statements
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import load

KINDS = (
    "comparison",
    "operator",
    "shift",
    "constant",
    "loop bound",
    "index",
    "another name",
    "swapped operands",
    "swapped lines",
    "left out",
    "instruction",
)
"""What is wrong with an emitter."""
PARTS = ("template", "Python", "instruction's text", "runtime's C")
"""What is changed: templates, the Python that fills them, how an instruction is written, or the runtime."""
_SWAPS: tuple[tuple[str, str, str], ...] = (
    *(("comparison", f" {a} ", f" {b} ") for a, b in (("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"))),
    *(("comparison", f" {a} ", f" {b} ") for a, b in (("==", "!="), ("!=", "=="))),
    *(("operator", f" {a} ", f" {b} ") for a, b in (("+", "-"), ("-", "+"), ("*", "+"), ("/", "*"), ("%", "/"))),
    *(("operator", f" {a} ", f" {b} ") for a, b in (("&", "|"), ("|", "&"), ("^", "|"), ("&&", "||"), ("||", "&&"))),
    *(("operator", f" {a} ", f" {b} ") for a, b in (("+=", "-="), ("-=", "+="), ("+=", "="), ("|=", "="))),
    *(("shift", f" {a} ", f" {b} ") for a, b in (("<<", ">>"), (">>", "<<"))),
)
"""Operators, and others that take their place."""
_PAIRS = (
    *(("row", "column"), ("rows", "columns"), ("ROWS", "COLUMNS"), ("ROW_BYTES", "COLUMN_BYTES")),
    *(("left", "top"), ("low", "high"), ("stride", "apart"), ("first", "last"), ("height", "width")),
    *(("stride_h", "stride_w"), ("dilation_h", "dilation_w"), ("kernel_h", "kernel_w"), ("pad_top", "pad_left")),
    *(("ky", "kx"), ("oy", "ox"), ("start", "end"), ("g", "h"), ("m", "n"), ("size", "count"), ("steps", "segments")),
    *(("K_STEP", "SLOT_BYTES"), ("unit", "lane"), ("at", "to"), ("terms", "affines"), ("line_bytes", "pixel_bytes")),
)
_OTHER_NAME = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
"""Names that are easily confused, of rows and columns, of lines and pixels: each with the name that replaces it."""
_NUMBER = re.compile(r"(?<![\w.%])\d+(?![\w.])")
_NAME = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*(?![\w(])|(?<=->)\w+")
_INDEX = re.compile(r"(?<=[\w\])])\[([^\[\]]+)\]")
_ARGUMENTS = re.compile(r"(?<=\w)\(([\w.>\[\] +*-]+), ([\w.>\[\] +*-]+)(?=[,)])")
_STATEMENT = re.compile(r"(?!return\b|const\b|static\b|for\b|if\b|while\b|else\b|enum\b)[\w\->\[\]().*+ ]+.*;")
_DECLARED = re.compile(r"[a-z]\w* (?:\*|const)*\w+(?:\[.*\])?(?: = .*)?;|.*\bunsigned\b.*")
_HEADER = re.compile(r"\b(?:for|while) \(")


def change_line(line: str) -> Iterator[tuple[str, str]]:
    """Yield the changes of a line of C, or of a template of C: the kind of each, and the changed line."""
    is_header = bool(_HEADER.search(line))

    def replace_match(match: re.Match[str], new: str) -> str:
        return line[: match.start()] + new + line[match.end() :]

    for kind, old, new in _SWAPS:
        yield from ((kind, replace_match(match, new)) for match in re.finditer(re.escape(old), line))
    for match in _NUMBER.finditer(line):
        kind = _kind_of_number(line[: match.start()].rstrip(), is_header)
        yield from ((kind, replace_match(match, str(x))) for x in (int(match[0]) - 1, int(match[0]) + 1) if x >= 0)
    for match in _INDEX.finditer(line):
        yield "index", replace_match(match, f"[{match[1]} + 1]")
    for match in _NAME.finditer(line):
        if match[0] in _OTHER_NAME:
            yield "another name", replace_match(match, _OTHER_NAME[match[0]])
    if is_header:
        yield from (("loop bound", replace_match(x, f"{x[1]} += 2)")) for x in re.finditer(r"\+\+(\w+)\)", line))
    else:
        yield from (("swapped operands", replace_match(x, f"({x[2]}, {x[1]}")) for x in _ARGUMENTS.finditer(line))
    if _is_statement(line):
        yield "left out", ""


def _kind_of_number(before: str, is_header: bool) -> str:
    """Return the kind of a changed number, by the text before it."""
    if before.endswith(("<<", ">>")):
        return "shift"
    if is_header:
        return "loop bound"
    return "index" if before.count("[") > before.count("]") else "constant"


def _is_statement(line: str) -> bool:
    """Return whether a line is a whole statement that declares nothing."""
    text = line.strip()
    return bool(_STATEMENT.fullmatch(text)) and not _DECLARED.fullmatch(text)


@dataclass(frozen=True)
class Change:
    """A change of an emitter: its kind, the file and the line, the change in words, and a function that makes it."""

    kind: str
    file: str
    line: int
    words: Callable[[], str]
    make: Callable[[], None]

    @property
    def part(self) -> str:
        """What is changed: one of PARTS."""
        if self.file.startswith("isa_specs/"):
            return "instruction's text"
        return {".j2": "template", ".py": "Python"}.get(Path(self.file).suffix, "runtime's C")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words()}"


def _in_words(old: str, new: str) -> str:
    return f"{' '.join(old.split())}  ->  {' '.join(new.split()) or '(left out)'}"


def change_text(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield changes of a text of C or of a template: the line from 1, the kind, the change in words, and the text."""
    lines = text.split("\n")
    in_comment = False
    for n, line in enumerate(lines):
        stripped = line.strip()
        if in_comment or stripped.startswith("/*"):
            in_comment = "*/" not in stripped
            continue
        if not stripped or stripped[0] == "#" or stripped.startswith(("*", "{#", "{% from", "{% include")):
            continue

        def replace_lines(*new: str, first: int = n) -> str:
            return "\n".join([*lines[:first], *new, *lines[first + len(new) :]])

        for kind, new in dict.fromkeys(change_line(line)):
            if not (stripped.startswith("{%") and kind in {"left out", "another name"}):
                yield n + 1, kind, _in_words(line, new), replace_lines(new)
        following = lines[n + 1] if n + 1 < len(lines) else ""
        if _is_statement(line) and _is_statement(following) and line != following:
            yield (
                n + 1,
                "swapped lines",
                _in_words(line, f"{following.strip()} before it"),
                replace_lines(following, line),
            )


def template_changes(names: Sequence[str]) -> list[Change]:
    """Return changes of the templates of these names."""
    texts = {name: (render.FOLDER / name).read_text(encoding="utf-8") for name in names}

    def change(name: str, line: int, kind: str, words: str, text: str) -> Change:
        return Change(kind, f"emit/templates/{name}", line, lambda: words, lambda: _use_templates({name: text}))

    return [change(name, *each) for name in names for each in change_text(texts[name])]


def _use_templates(texts: Mapping[str, str]) -> None:
    """Have templates of these names rendered from these texts."""
    environment = render.environment.__wrapped__()
    assert environment.loader is not None
    environment.loader = jinja2.ChoiceLoader([jinja2.DictLoader(texts), environment.loader])
    environment.bytecode_cache = None
    render.environment = lambda: environment  # type: ignore[assignment]


def file_changes(text: str, file: str, use: Callable[[str], None]) -> list[Change]:
    """Return changes of a file of C that is copied into libraries; `use` takes the changed text."""

    def change(line: int, kind: str, words: str, changed: str) -> Change:
        return Change(kind, file, line, lambda: words, lambda: use(changed))

    return [change(*each) for each in change_text(text)]


_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_LEFT_ALONE = (ast.Assert, ast.Raise, ast.Import, ast.ImportFrom, ast.arguments)


@dataclass(frozen=True)
class _NodeChange:
    """A change of Python: its kind, the node that is changed or left out, and a function that changes the tree."""

    kind: str
    node: ast.AST
    make: Callable[[], None]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it that are run: no docstrings, annotations, messages of errors and decorators."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, _LEFT_ALONE) and not _is_docstring(child):
                yield from _walk(child)


def _set(kind: str, node: ast.AST, **fields: object) -> _NodeChange:
    return _NodeChange(kind, node, lambda: node.__dict__.update(fields))


def _node_changes(node: ast.AST) -> Iterator[_NodeChange]:
    """Yield changes of a node of Python."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield _set("comparison", node, ops=[_COMPARISONS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        kind = "shift" if isinstance(node.op, ast.LShift | ast.RShift) else "operator"
        yield _set(kind, node, op=_OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield _set("operator", node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.If | ast.IfExp):
        yield _set("comparison", node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Call) and len(node.args) > 1 and not any(isinstance(x, ast.Starred) for x in node.args):
        yield _set("swapped operands", node, args=[node.args[1], node.args[0], *node.args[2:]])
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield from (_set("constant", node, value=node.value + more) for more in (-1, 1))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from (_set(kind, node, value=new) for kind, new in dict.fromkeys(change_line(node.value)))
    for name in ("body", "orelse"):
        body = getattr(node, name, None)
        if isinstance(body, list) and not isinstance(node, ast.Module | ast.ClassDef):
            yield from _body_changes(body)


def _body_changes(body: list[ast.stmt]) -> Iterator[_NodeChange]:
    """Yield changes of statements: one that is left out, or two in another order."""

    def change(kind: str, k: int, *new: ast.stmt) -> _NodeChange:
        return _NodeChange(kind, body[k], lambda: body.__setitem__(slice(k, k + len(new)), new))

    for k, statement in enumerate(body):
        if isinstance(statement, ast.Expr | ast.AugAssign) and not _is_docstring(statement):
            yield change("left out", k, ast.Pass())
            following = body[k + 1] if k + 1 < len(body) else None
            if isinstance(following, ast.Expr | ast.AugAssign):
                yield change("swapped lines", k, following, statement)


def _is_docstring(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def module_changes(names: Sequence[str]) -> list[Change]:
    """Return changes of the Python of modules of bitsynth."""
    return [change for name in names for change in _changes_of_module(importlib.import_module(f"bitsynth.{name}"))]


def _changes_of_module(module: ModuleType) -> Iterator[Change]:
    source = inspect.getsource(module)
    file = f"{module.__name__.removeprefix('bitsynth.').replace('.', '/')}.py"
    for n, node in enumerate(_walk(ast.parse(source))):
        for k, change in enumerate(_node_changes(node)):
            changed = _ChangedModule(module, source, n, k)
            yield Change(change.kind, file, getattr(change.node, "lineno", 0), changed.words, changed)


@dataclass(frozen=True)
class _ChangedModule:
    """A change of a module: of node `node` of its source, the change `number`."""

    module: ModuleType
    source: str
    node: int
    number: int

    def _change(self) -> tuple[ast.Module, _NodeChange]:
        """Return a tree of the module, and the change of it."""
        tree = ast.parse(self.source)
        node = next(x for n, x in enumerate(_walk(tree)) if n == self.node)
        return tree, list(_node_changes(node))[self.number]

    def words(self) -> str:
        """Return the change in words."""
        _, change = self._change()
        old = ast.unparse(change.node)
        if change.kind in {"left out", "swapped lines"}:
            return f"{' '.join(old.split())}  ->  ({'left out' if change.kind == 'left out' else 'behind the next'})"
        change.make()
        first, new = old.partition("\n")[0], ast.unparse(ast.fix_missing_locations(change.node)).partition("\n")[0]
        return _in_words(first, new)

    def __call__(self) -> None:
        """Run the changed module in the place of the module, as other modules see it too."""
        tree, change = self._change()
        change.make()
        _run_anew(self.module, tree)


def _run_anew(module: ModuleType, tree: ast.Module) -> None:
    """Run another tree of a module; functions and classes that other modules have imported of it are replaced there."""
    values = vars(module)
    before = dict(values)
    exec(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"), values)
    replaced = {id(old): values[name] for name, old in before.items() if values[name] is not old and callable(old)}
    for other in [x for name, x in sys.modules.items() if name.startswith("bitsynth.")]:
        for name, value in list(vars(other).items()):
            if id(value) in replaced:
                setattr(other, name, replaced[id(value)])


def replacement(kind: str, file: str, old: str, new: str) -> Change:
    """Return the change that puts `new` in the place of `old`, which the file of the emitter has once."""
    path = render.FOLDER.parents[1] / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
    line = text[: text.index(old)].count("\n") + 1
    changed = text.replace(old, new)
    words = _in_words(old, new)
    if file.endswith(".j2"):
        return Change(kind, file, line, lambda: words, lambda: _use_templates({path.name: changed}))
    module = importlib.import_module(f"bitsynth.{file.removesuffix('.py').replace('/', '.')}")
    return Change(kind, file, line, lambda: words, lambda: _run_anew(module, ast.parse(changed)))


def instruction_changes(isa: str, forms: Sequence[str]) -> list[Change]:
    """Return changes of the text of instructions: another instruction on the same operands, or another order of
    operands."""
    return [change for name in sorted(forms) for change in _changes_of_form(load(isa)[name])]


def _changes_of_form(instr: Instr) -> Iterator[Change]:
    def signature(x: Instr) -> tuple[object, ...]:
        kinds = [(o.type.total_bits, o.memory) for o in x.operands]
        return (kinds, x.out.total_bits, bool(x.imm), x.store, x.feature, [o.type.in_general for o in x.operands])

    isa = load(instr.isa)
    others = [x for x in isa.instrs.values() if signature(x) == signature(instr) and x.text != instr.text]
    changes = [_Written(instr, other) for other in others]
    kinds = [o.type.total_bits for o in instr.operands]
    if len(kinds) > 1 and kinds[0] == kinds[1] and not instr.store:
        changes.append(_Written(instr, instr, in_order=False))
    for each in changes:
        kind = "instruction" if each.in_order else "swapped operands"
        yield Change(kind, f"isa_specs/{instr.isa}: {instr.name}", 0, each.words, each)


@dataclass(frozen=True)
class _Written:
    """An instruction that is written as another one, or with its first operands in another order."""

    instr: Instr
    other: Instr
    in_order: bool = True

    def words(self) -> str:
        """Return the change in words."""
        return _in_words(self.instr.text, self.other.text if self.in_order else "operands in another order")

    def __call__(self) -> None:
        """Replace what writes instructions."""
        write = statements.Scope.call

        def call(self_: statements.Scope, instr: Instr, args: Sequence[str], imm: int = 0, to: str = "") -> str:
            if instr.name != self.instr.name:
                return write(self_, instr, args, imm, to)
            forms = self_.forms
            self_.forms = {*forms, self.other.name}
            given = list(args)
            text = write(self_, self.other, given if self.in_order else [given[1], given[0], *given[2:]], imm, to)
            self_.forms = forms
            return text

        statements.Scope.call = call  # type: ignore[method-assign,assignment]
