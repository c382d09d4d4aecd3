"""Which method wins at which widths, and where int8 does: every processor of the instruction sets.

    python benchmarks/explore.py [SET ...] [--results FOLDER]

Writes explore_SET.md, .json, .png and .svg. Kernels are planned and
priced by the cost model, not proved; `bitsynth explore` does the same for one processor.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import report

from bitsynth.bench.plots import survey
from bitsynth.bench.setting import Basis
from bitsynth.cli import output
from bitsynth.cli.reports import winners
from bitsynth.isa.load import load
from bitsynth.synth import survey as surveys
from bitsynth.synth.survey import Map

ISAS = ("avx2", "avx512", "neon", "neon_dotprod", "armv7_neon")
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", default=ISAS, help=f"by default {', '.join(ISAS)}")
    parser.add_argument("--results", type=report.folder, default=RESULTS, help="where results are written")
    given = parser.parse_args()
    for isa in given.sets:
        basis = winners.basis([isa])
        maps = [_survey(isa, cpu) for cpu in load(isa).table.cpu]
        write(given.results, isa, maps, basis)
    return 0


def _survey(isa: str, cpu: str) -> Map:
    with output.progress(f"{isa} on {cpu}", bar=True) as say:
        found = surveys.survey(isa, cpu, progress=say)
    winners.show(found)
    return found


def write(folder: Path, isa: str, maps: Sequence[Map], basis: Basis) -> None:
    """Maps of every processor of the set, and the kernels of the same planner."""
    stem = f"explore_{isa}"
    facts = report.facts(basis, proved=False, maps=winners.facts(maps))
    sections = (_section(found) for found in maps)
    plot = f"![maps and curves]({stem}.png)"
    report.write(folder, stem, f"{isa}: what wins where", __doc__ or "", facts, plot, *sections)
    survey.draw(maps, folder / stem)


def _section(found: Map) -> str:
    wgts = sorted({c.w_bits for c in found.cells})
    rows = [[f"A{a}", *(_cell(found, a, w) for w in wgts)] for a in sorted({c.act_bits for c in found.cells})]
    table = report.markdown(["", *(f"W{w}" for w in wgts)], rows)
    return "\n\n".join([f"## {found.cpu}", table, "\n".join(f"- {_plain(line)}" for line in winners.legend(found))])


def _cell(found: Map, act_bits: int, w_bits: int) -> str:
    cell = next(c for c in found.cells if (c.act_bits, c.w_bits) == (act_bits, w_bits))
    text = winners.winner(found, cell)
    marked = f"**{text.removesuffix(' *')}** \\*" if text.endswith("*") else text
    return f"{marked}<br>{winners.ratios(found, cell)}"


def _plain(line: str) -> str:
    """A line of the legend, its star no emphasis."""
    return line.replace("*", "\\*", 1)


if __name__ == "__main__":
    report.run(main)
