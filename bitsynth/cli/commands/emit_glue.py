"""`bitsynth emit-glue`: write a pooling, elementwise or resizing layer as plain C."""

from __future__ import annotations

from bitsynth.cli import output
from bitsynth.cli.boards import open_board
from bitsynth.cli.files import require_writable
from bitsynth.cli.options.instruction_sets import IsaOrAuto
from bitsynth.cli.options.layers import GlueArgument, LayerName
from bitsynth.cli.options.measuring import DeviceOption, DeviceRunner
from bitsynth.cli.options.output import Folder, Json
from bitsynth.files import reserve_folder, write_texts

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
    from bitsynth.cli.glue_text import parse_glue

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
