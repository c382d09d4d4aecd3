"""`bitsynth explore`: map the method with the fewest cycles for each pair of bit-widths."""

from __future__ import annotations

from bitsynth.cli import figures, output
from bitsynth.cli.machines import set_and_processor
from bitsynth.cli.options.instruction_sets import Cpu, IsaOrAuto
from bitsynth.cli.options.kernels import Jobs, ManyActBits, ManyWBits
from bitsynth.cli.options.output import JsonFile, Plot
from bitsynth.cli.parse import parse_bits
from bitsynth.isa.load import load


def explore(
    isa: IsaOrAuto,
    cpu: Cpu = "",
    act_bits: ManyActBits = "1-8",
    w_bits: ManyWBits = "1-4",
    json_file: JsonFile = None,
    plot: Plot = None,
    jobs: Jobs = None,
) -> None:
    """Map which method wins at which bit-widths.

    For every pair of widths each method's cheapest kernel is planned and priced in cycles of one processor by the cost
    model, and compared with int8 and fp32 loops at the processor's peak. These kernels are neither proved nor kept.
    Without --cpu the processor is the first of the set, or with --isa auto this one.
    """
    isa, cpu = set_and_processor(isa, cpu)
    load(isa)
    widths = parse_bits("--act-bits", act_bits), parse_bits("--w-bits", w_bits)
    figures.require(json_file, plot=plot)
    with output.progress(f"explore {isa}", bar=True) as say:
        say("starting the solver")
        from bitsynth.cli.reports import winners
        from bitsynth.synth.survey import survey

        basis = winners.basis([isa])
        width_map = survey(isa, cpu, *widths, workers=jobs, progress=say)
    with figures.tables(json_file):
        winners.show(width_map)
    if json_file:
        figures.write(json_file, winners.as_json([width_map], basis))
    if plot:
        from bitsynth.bench.plots.survey import draw

        draw([width_map], plot)
