"""`bitsynth export`: write a quantized network as another ONNX file."""

from __future__ import annotations

from collections import Counter

from bitsynth.cli import output
from bitsynth.cli.options.networks import (
    AsPatterns,
    Batch,
    FixedInputs,
    InputBits,
    InputEncoding,
    InputScale,
    InputShapes,
    ModelArgument,
    OnnxFile,
    Reference,
    WithShifts,
    warn_of_fixed_batch,
)
from bitsynth.cli.output import require_writable
from bitsynth.cli.parse import input_codes, parse_fixed, parse_shapes
from bitsynth.errors import SpecError
from bitsynth.files import replace_file
from bitsynth.spec.matmul import Encoding

_ADVICE = "name another file with -o"


def export(
    model: ModelArgument,
    to: OnnxFile,
    patterns: AsPatterns = False,
    shifts: WithShifts = False,
    batch: Batch = None,
    shape: InputShapes = None,
    fix: FixedInputs = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
) -> None:
    """Write a quantized network in standard ONNX operators.

    With --patterns, the only form so far, each layer becomes a product of uint8 and int8 in int32, a float32 factor
    and QuantizeLinear, as pre-quantized networks are written, so that any runtime can read it. It is proved to have
    the same codes at every joint. Inputs are the codes of the first quantizers. If a node has no such pattern, it is
    named and nothing is written.
    """
    from bitsynth.graph.read import read
    from bitsynth.network.patterns import export_integers

    if not patterns:
        raise SpecError("export wants a form: --patterns is the one there is")
    codes = input_codes(input_bits, input_scale, input_encoding)
    shapes, fixed = parse_shapes(shape), parse_fixed(fix)
    with output.progress("export") as say:
        say("reading")
        graph = read(model, batch=batch, reference=reference, codes=codes, shapes=shapes, fixed=fixed)
        warn_of_fixed_batch(graph, batch)
        say(f"proving {len(graph.nodes)} nodes")
        exported_model = export_integers(graph, shifts=shifts)
    require_writable(to.parent, _ADVICE)
    replace_file(to, exported_model.SerializeToString(), _ADVICE)
    output.write(f"wrote {to}: {_count_operators(Counter(node.op_type for node in exported_model.graph.node))}")


def _count_operators(operators: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in operators.most_common())
