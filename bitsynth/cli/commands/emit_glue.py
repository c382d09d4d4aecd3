"""`bitsynth emit-glue`: write a pooling, elementwise or resizing layer as plain C.

A layer is given as text: a Python call that contains only numbers, words and lists.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from bitsynth.cli import output
from bitsynth.cli.machines import open_board
from bitsynth.cli.options.instruction_sets import IsaOrAuto
from bitsynth.cli.options.layers import GlueArgument, LayerName
from bitsynth.cli.options.measuring import DeviceOption, DeviceRunner
from bitsynth.cli.options.output import Folder, Json
from bitsynth.cli.output import require_writable
from bitsynth.errors import SpecError
from bitsynth.files import reserve_folder, write_texts
from bitsynth.layers import Requantize, glue

_LAYERS: dict[str, Callable[..., Any]] = {
    name: kind
    for name in glue.__all__
    if issubclass(kind := getattr(glue, name), glue.Glue) and not inspect.isabstract(kind)
}
_PARTS: dict[str, Callable[..., Any]] = {"Quantization": glue.Quantization, "Requantize": Requantize}
_OPTIONS = ("isa", "threads")
"""Arguments of layers that are options of the command."""


def parse_glue(text: str, isa: str) -> glue.Glue:
    """Return the layer that a text stands for, such as 'Pad2d(64, 2, padding=1)'; SpecError for other texts."""
    try:
        layer = _call_value(ast.parse(text.strip(), mode="eval").body, _LAYERS, "a layer", isa=isa)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = str(error) or "it is too deep"
        raise SpecError(f"want a layer such as 'MaxPool2d(64, 2, 2)', not {text[:60]!r}: {why}") from None
    assert isinstance(layer, glue.Glue)
    return layer


def _call_value(call: ast.expr, functions: dict[str, Callable[..., Any]], what: str, **more: Any) -> Any:
    """Return the value of a call of one of the `functions`, by name."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in functions:
        raise SpecError(f"{ast.unparse(call)[:60]!r} is not {what}; known: {', '.join(functions)}")
    kind, name = functions[call.func.id], call.func.id
    named = {x.arg: _argument_value(x.value) for x in call.keywords if x.arg}
    if len(named) < len(call.keywords) or any(isinstance(x, ast.Starred) for x in call.args):
        raise SpecError(f"{name}: write each argument by itself, without *")
    if unfit := [option for option in _OPTIONS if option in named]:
        raise SpecError(f"{name}: {unfit[0]} is not an argument of the text; give the instruction set with --isa")
    given = [_argument_value(x) for x in call.args]
    try:
        inspect.signature(kind).bind(*given, **named)
        return kind(*given, **named, **more)
    except TypeError as error:
        raise SpecError(f"{name}: {error}") from None


def _argument_value(text: ast.expr) -> Any:
    """Return a number, a word, a list of them, or a part of a layer."""
    if isinstance(text, ast.List | ast.Tuple):
        values = [_argument_value(x) for x in text.elts]
        return values if isinstance(text, ast.List) else tuple(values)
    if isinstance(text, ast.Call):
        return _call_value(text, _PARTS, "a part of a layer")
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError):
        raise SpecError(f"{ast.unparse(text)[:60]!r} is no number, word or list of them") from None


_ADVICE = "choose another folder with -o"


def emit_glue(
    layer: GlueArgument,
    name: LayerName,
    to: Folder,
    isa: IsaOrAuto = "auto",
    as_json: Json = False,
    device: DeviceOption = None,
    device_runner: DeviceRunner = "",
) -> None:
    """Write a pooling, elementwise or resizing layer as a C library.

    The layer is written as in Python: 'MaxPool2d(64, 2, 2, layout="packed")'. The library is C11 that builds with any
    compiler and needs nothing else: header, source, runtime, a self-test against expected results, and CMakeLists.txt.
    Build and test it with `cmake -B build && cmake --build build && ctest --test-dir build`.

    With --device the layer is written for the instruction set of a board, and its self-test runs there first.
    """
    with reserve_folder(to, _ADVICE), open_board(device, device_runner) as board:
        parsed = parse_glue(layer, board.best_isa() if board and isa == "auto" else isa)
        files = parsed.files(name)
        require_writable(to, _ADVICE)
        checked = board.run_glue(parsed) if board else ""
        paths = write_texts(to, files)
    if as_json:
        output.write_json({"name": name, "isa": parsed.isa, "files": [str(p) for p in paths]})
        return
    if checked:
        output.write(f"the self-test is right on {checked}")
    output.write(f"wrote {output.count(len(paths), 'file')} for {parsed.isa} in {to}: {name}.h, {name}.c and others")
