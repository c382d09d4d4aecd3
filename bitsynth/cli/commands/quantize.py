"""`bitsynth quantize`: quantize a float network for a processor."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.figures import require as require_result_files
from bitsynth.cli.options.instruction_sets import ForCpu, IsaOrAuto
from bitsynth.cli.options.measuring import Threads
from bitsynth.cli.options.networks import Batch, FixedInputs, InputShapes, ModelArgument, OnnxFile
from bitsynth.cli.options.output import HtmlFile, Json, output_path
from bitsynth.cli.parse import parse_bits, parse_fixed, parse_shapes
from bitsynth.errors import SpecError
from bitsynth.files import replace_file, write_texts
from bitsynth.printable import show

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bitsynth.quantization import QuantizationReport, Quantized

_ADVICE = "name another file"
_MOST_NAMES = 3
"""The most edges that are named in a line."""
_FRONT = "front"
"""The beginning of the names of files in the folder of a front."""
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="FILE",
        help="Typical inputs: a .npz file with an array for each input, samples along the first axis; or a .npy file, "
        "if the network has one input.",
        show_default=False,
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="A .npy file with the class of each sample: the loss is then the accuracy that is lost.",
        show_default="the loss is the error of the output",
    ),
]
AllowedLoss = Annotated[
    str | None,
    typer.Option(
        "--loss",
        metavar="X",
        help="The greatest loss, as in 1% or 0.01.",
        show_default="1%, or any if the loss is minimized",
    ),
]
AllowedCycles = Annotated[
    int | None,
    typer.Option("--cycles", metavar="N", min=1, help="The most predicted cycles of the network.", show_default="any"),
]
AllowedBytes = Annotated[
    int | None,
    typer.Option("--bytes", metavar="N", min=1, help="The most bytes of its constants.", show_default="any"),
]
ActWidths = Annotated[
    str, typer.Option("--act-bits", metavar="BITS", help="Bits of activations to choose from, such as 2-8 or 4,8.")
]
WeightWidths = Annotated[
    str, typer.Option("--w-bits", metavar="BITS", help="Bits of weights to choose from, such as 1-8 or 4,8.")
]
ActivationRanges = Annotated[
    str,
    typer.Option(
        "--ranges",
        metavar="RULE",
        help="Numbers of activations that codes hold: mse (the least mean squared error, also auto); minmax (all that "
        "were seen); percentile (99.9), or percentile=P.",
    ),
]
Minimize = Annotated[
    str,
    typer.Option(
        "--minimize",
        metavar="WHAT",
        help="cycles, bytes or loss.",
        show_default="cycles if the loss has a bound, else loss",
    ),
]
WrittenAs = Annotated[
    str,
    typer.Option(
        "--format", metavar="FORMAT", help="qonnx; qcdq, without 1-bit weights; or qdq, with 8-bit activations alone."
    ),
]
FineTune = Annotated[
    str | None,
    typer.Option(
        "--finetune",
        metavar="MINUTES",
        help="Train the network with the best widths for some minutes, such as 10 or 0.5; or for steps, such as "
        "2000steps. Needs PyTorch (the extra train).",
        show_default="no training",
    ),
]
FineTuneData = Annotated[
    Path | None,
    typer.Option(
        "--finetune-data",
        metavar="FILE",
        help="Inputs to train on, a file like the one of --data; then none of --data is trained on.",
        show_default="four fifths of --data",
    ),
]
FrontFolder = Annotated[
    Path | None,
    typer.Option(
        "--pareto",
        metavar="DIR",
        parser=output_path,
        help="Also search the front of loss and cycles (or bytes), and write its networks, a table and a plot to DIR.",
        show_default=False,
    ),
]


def quantize(
    model: ModelArgument,
    data: Data,
    to: OnnxFile,
    labels: Labels = None,
    loss: AllowedLoss = None,
    cycles: AllowedCycles = None,
    most_bytes: AllowedBytes = None,
    minimize: Minimize = "",
    isa: IsaOrAuto = "auto",
    cpu: ForCpu = "",
    threads: Threads = 1,
    act_bits: ActWidths = "2,3,4,8",
    w_bits: WeightWidths = "2,3,4,8",
    ranges: ActivationRanges = "auto",
    batch: Batch = None,
    shape: InputShapes = None,
    fix: FixedInputs = None,
    written_as: WrittenAs = "qonnx",
    finetune: FineTune = None,
    finetune_data: FineTuneData = None,
    pareto: FrontFolder = None,
    html: HtmlFile = None,
    as_json: Json = False,
) -> None:
    """Quantize a float network for a processor.

    Chooses bits and encodings for each layer: the fewest predicted cycles on the processor at a loss of at most
    --loss. With --cycles or --bytes alone it looks for the least loss within these bounds; --minimize names another
    goal, and all bounds hold. Weights and biases are fitted layer by layer to the inputs given. Inputs of the network
    have 8 bits, as have residuals and inputs of pools that no product reads. The file is for `bitsynth compile`; ONNX
    Runtime runs it too as qcdq or qdq.

    --finetune trains the network that was chosen, to give the float network's outputs: on four fifths of the samples,
    or on the samples of --finetune-data.

    The loss is measured on --data, after training on the samples that were held back; at the end it is measured with
    the compiled network, if its instruction set runs here. Judge the result by other data. A search that was
    interrupted goes on when it is repeated.
    """
    from bitsynth.graph.read.file import name_in_errors
    from bitsynth.quantization import quantize as quantize_network
    from bitsynth.quantization.finetuning import FineTuning

    require_result_files(to, html, plot=pareto and pareto / _FRONT)
    if pareto:
        _require_front_folder(pareto)
    sources = [path for path in (model, data, labels, finetune_data) if path and path.exists()]
    for option, path in (("-o", to), ("--html", html)):
        if path:
            _require_other_file(option, path, sources, pareto)
    if html and html.absolute() == to.absolute():
        raise SpecError(f"--html and -o name the same file; {_ADVICE}")
    bound = None if loss is None else _parse_loss(loss)
    length = None if finetune is None else FineTuning.parse(finetune)
    widths = parse_bits("--act-bits", act_bits), parse_bits("--w-bits", w_bits)
    inputs, trained = _read_inputs(data), _read_inputs(finetune_data) if finetune_data else None
    with name_in_errors(model), output.progress("quantize", bar=True) as say:
        result = quantize_network(
            model,
            inputs,
            labels=None if labels is None else next(iter(_read(labels).values())),
            loss=bound,
            cycles=cycles,
            bytes=most_bytes,
            minimize=minimize,
            isa=isa,
            cpu=cpu,
            threads=threads,
            act_bits=widths[0],
            w_bits=widths[1],
            ranges=ranges,
            batch=batch,
            shapes=parse_shapes(shape),
            fixed=parse_fixed(fix),
            front=pareto is not None,
            finetune=length,
            finetune_data=trained,
            file_format=written_as,
            progress=say,
        )
    report = result.report
    if pareto:
        _write_front(pareto, result)
    if html:
        from bitsynth.cli.reports.quantize_page import page

        replace_file(html, page(report, show(model.name), report.front_by).encode(), _ADVICE)
    replace_file(to, result.model.SerializeToString(), _ADVICE)
    if as_json:
        output.write_json({**report.as_json(), "file": str(to)})
        return
    written = ", ".join(str(path) for path in (to, pareto, html) if path)
    output.write(_heading(report), "", _table(report), "", *_reasons(report), *_ends(report), f"wrote {written}")


def _require_other_file(option: str, path: Path, sources: Sequence[Path], front: Path | None) -> None:
    """Raise SpecError if a file to write is a folder, a file that is read, or in the folder of the front."""
    if path.is_dir() or (path.exists() and any(path.samefile(source) for source in sources)):
        raise SpecError(f"{option} {path}: a folder, or a file that is read; {_ADVICE}")
    if front and path.resolve().parent == front.resolve():
        raise SpecError(f"{option} {path}: it is in the folder of --pareto; {_ADVICE}")


def _require_front_folder(folder: Path) -> None:
    """Raise SpecError unless a folder is empty, or has a front that was written before."""
    if not (folder / f"{_FRONT}.json").is_file() and any(folder.iterdir()):
        raise SpecError(f"--pareto {folder}: it has other files; name another folder")


def _write_front(folder: Path, result: Quantized) -> None:
    """Write the networks of the front, the cheapest first, tables of every choice that was run, and the plot."""
    from bitsynth.bench.plots import front as plotting

    report, by = result.report, result.report.front_by
    names = [f"{_FRONT}_{k + 1:02}.onnx" for k in range(len(result.front))]
    files: dict[str, str | bytes] = {
        name: network.model.SerializeToString() for name, network in zip(names, result.front, strict=True)
    }
    of_point = {network.point: name for name, network in zip(names, result.front, strict=True)}
    rows = [{**asdict(trial), "file": of_point.get(trial, "")} for trial in report.trials]
    lines = [[str(value) for value in row.values()] for row in rows]
    files[f"{_FRONT}.csv"] = "".join(",".join(line) + "\n" for line in [[*rows[0]], *lines])
    with tempfile.TemporaryDirectory() as temporary:
        costs = [trial.cycles if by == "cycles" else trial.bytes for trial in report.trials]
        what = "accuracy lost" if report.loss_is == "accuracy" else "error of the output"
        cost = "predicted cycles" if by == "cycles" else "bytes of constants"
        plotting.draw(report.trials, costs, (cost, what), Path(temporary, _FRONT))
        files |= {path.name: path.read_bytes() for path in Path(temporary).iterdir()}
    files[f"{_FRONT}.json"] = json.dumps({"by": by, "trials": rows}, indent=1) + "\n"
    write_texts(folder, files, ours=True)
    for path in folder.glob(f"{_FRONT}_*.onnx"):
        if path.name not in files:
            path.unlink()


def _parse_loss(text: str) -> float:
    """Return the share in `1%` or `0.01`; SpecError for anything else."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)(%?)", text, re.ASCII)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share < 1:
        raise SpecError(f"--loss: want a share, such as 1% or 0.01, not {text!r}")
    return share


def _read(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a file; SpecError if it cannot be read or has none."""
    from bitsynth.layers.array_files import read_arrays

    try:
        arrays = read_arrays(path, "data")
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    if not arrays:
        raise SpecError(f"{path} has no arrays")
    return arrays


def _read_inputs(path: Path) -> dict[str, NDArray[np.generic]] | NDArray[np.generic]:
    """Return the arrays of a .npz file by name, or the array of a .npy file."""
    arrays = _read(path)
    return arrays if len(arrays) > 1 or path.suffix != ".npy" else next(iter(arrays.values()))


def _heading(report: QuantizationReport) -> Text:
    on = f"{report.isa}, {report.cpu}" if report.cpu else report.isa
    return Text.assemble(("quantized", "bold"), f" for {on}, by {output.count(report.samples, 'sample')}")


def _table(report: QuantizationReport) -> Table:
    """Return a table with a row for each product."""

    def rows(gap: int, room: int) -> Table:
        columns = ("acts", "weights", "cycles", "bytes", "error")
        table = output.table("product", *columns, right=columns, whole=columns, gap=gap)
        for layer in report.layers:
            table.add_row(
                output.cut_name(show(layer.name), room),
                f"{layer.act_bits} bits",
                f"{layer.w_bits} bits {layer.w_encoding}",
                f"{layer.cycles:,}" if layer.cycles else "plain C",
                f"{layer.weight_bytes:,}" if layer.weight_bytes else "",
                f"{layer.loss:.2%}",
            )
        return table

    return output.fit_named_table(rows)


def _reasons(report: QuantizationReport) -> list[str]:
    """Return a line for each layer that kept the most bits; an empty one behind them."""
    lines = [f"{show(layer.name)}: {layer.why}" for layer in report.layers if layer.why]
    return [*lines, ""] if lines else []


def _ends(report: QuantizationReport) -> list[str]:
    """Return the lines below the table."""
    what = "of accuracy" if report.loss_is == "accuracy" else "error of the output"
    error = f", standard error {report.standard_error:.2%}" if report.standard_error else ""
    data = "these data"
    tuning = []
    if tuned := report.finetuned:
        data = f"the {output.count(tuned.held_back, 'sample')} held back"
        kept = "" if tuned.is_better else "; none was better, so it is as before"
        tuning = [
            f"training {output.count(tuned.steps, 'step')} on {output.count(tuned.trained_on, 'sample')}{kept}",
            f"before   {tuned.loss_before:.2%} {what} on {data}",
        ]
    allowed = "any allowed" if report.bound is None else f"{report.bound:.2%} allowed"
    lines = [
        f"{report.in_kernels} of {output.count(len(report.layers), 'product')} by kernels; expected in "
        f"{report.cycles:,} cycles",
        f"weights {report.weight_bytes:,} bytes, {report.float_bytes:,} in float32",
        *tuning,
        f"loss     {report.loss:.2%} {what}{error} on {data}, {allowed}; by {report.measured_by}",
    ]
    if report.equalized:
        lines.append(f"channels equalized: {output.count(len(report.equalized), 'edge')}, at no cost")
    if report.in_floats:
        names = ", ".join(show(name) for name in report.in_floats[:_MOST_NAMES])
        more = ", ..." if len(report.in_floats) > _MOST_NAMES else ""
        edges = output.count(len(report.in_floats), "edge")
        lines.append(f"in floats: {edges} whose 8 bits alone would lose too much: {names}{more}")
    for output_error in report.errors:
        name = show(output_error.output)
        lines.append(f"errors   of {name}: at most {output_error.measured:.4g} measured on {data}")
        if output_error.bound is not None:
            lines[-1] += f"; at most {output_error.bound:.4g} proved for all inputs in their range"
        if output_error.bound_in_ranges is not None:
            lines[-1] += f", {output_error.bound_in_ranges:.4g} if no edge leaves the range that was seen"
    if report.no_error_bound:
        lines.append(f"no bound of the error is proved: {report.no_error_bound}")
    if report.float_accuracy is not None:
        lines.append(f"accuracy {report.float_accuracy - report.loss:.2%}, {report.float_accuracy:.2%} in floats")
    return lines
