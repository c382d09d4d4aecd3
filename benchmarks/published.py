"""The published results: the command of each, the facts in their files, and which are older than their kernels.

A result is a JSON file in benchmarks/results, with the setting it was measured in and the digests of the kernels that
it rests on; Markdown and plots of the same name belong to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import report

from bitsynth import paths
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.matmul import MATMUL

FOLDER = Path(__file__).parent / "results"
OF_NETWORKS = Path(__file__).parents[1] / "docs" / "results"
"""The folder of results about whole networks; each has a page of its own in docs."""
INDEX = "README.md"
X86 = ("avx2", "avx512")


def _commands() -> Iterator[tuple[str, str]]:
    to = "--results benchmarks/results"
    for isa in X86:
        layers = f"BITSYNTH_CC=clang bitsynth bench resnet18 --isa {isa} --act-bits 1,2 --w-bits 1,2"
        more = f"{layers} --weight-encoding bipolar,signed,ternary --rounds 15"
        yield f"resnet18_{isa}", more + _files(f"resnet18_{isa}")
        yield f"resnet18_packed_{isa}", f"{more} --form packed{_files(f'resnet18_packed_{isa}')}"
        epilogues = f"BITSYNTH_CC=gcc python benchmarks/epilogues.py --isa {isa} --rounds 5 {to}"
        yield f"epilogues_{isa}", epilogues
        yield f"depthwise_{isa}", f"BITSYNTH_CC=gcc python benchmarks/depthwise.py --isa {isa} {to}"
        yield f"edges_{isa}", f"BITSYNTH_CC=clang python benchmarks/edges.py --isa {isa} {to}"
        yield f"fusion_costs_{isa}", f"BITSYNTH_CC=gcc python benchmarks/fusion_costs.py --isa {isa} --cpu zen4 {to}"
    for isa, cc in product(X86, ("gcc", "clang")):
        stem = f"kernels_{isa}_{cc}"
        yield stem, f"BITSYNTH_CC={cc} bitsynth bench kernels --isa {isa} --act-bits 1,2,3 --w-bits 1,2,3{_files(stem)}"
    for isa in X86:
        schedules = f"BITSYNTH_CC=clang python benchmarks/layer_schedules.py --isa {isa} --rounds 11 {to}"
        yield f"layer_schedules_{isa}", schedules
    yield "schedule_steps", f"BITSYNTH_CC=gcc python benchmarks/schedule_steps.py --rounds 15 {to}"
    yield "width_grid", f"BITSYNTH_CC=gcc python benchmarks/width_grid.py --rounds 11 {to}"
    yield "figures", f"python benchmarks/figures.py --md {to}"
    for isa in (*X86, "neon", "neon_dotprod", "armv7_neon"):
        yield f"explore_{isa}", f"python benchmarks/explore.py {isa} {to}"
    for stem in ("findings", "popcount_bounds", "arm_layers", "arm_cycles", "arm_predictions", "arm_layer_cycles"):
        yield stem, f"python benchmarks/{stem}.py {to}"


def _files(stem: str) -> str:
    return f" --json benchmarks/results/{stem}.json --plot benchmarks/results/{stem}"


COMMANDS = dict(_commands())
"""The command that measures each result, from the checkout's folder; commands that time something first."""
TIMED = tuple(COMMANDS)[: tuple(COMMANDS).index("figures") + 1]
"""The results that need a quiet machine."""


@dataclass(frozen=True)
class Result:
    """A published result."""

    stem: str
    facts: dict[str, Any]

    @property
    def setting(self) -> dict[str, str]:
        """The setting that the result tells."""
        setting: dict[str, str] = self.facts["setting"]
        return setting

    @property
    def compilers(self) -> list[str]:
        """The compilers that the result tells."""
        return list(dict.fromkeys(what for name, what in self.setting.items() if name.startswith("compiler (")))

    @property
    def stale(self) -> list[str]:
        """The kernels that it rests on and that were solved anew since, or are gone."""
        return [place for place, digest in self.facts["kernels"].items() if _digest(place) != digest]

    @property
    def age(self) -> str:
        """Whether it is older than its kernels, in words."""
        count, stale = len(self.facts["kernels"]), len(self.stale)
        return f"**stale**: {stale} of {count} solved anew since" if stale else str(count or "none")


def results(stems: Iterable[str] = COMMANDS, folder: Path | None = None) -> list[Result]:
    """Return those results that are there; `folder` is FOLDER unless given."""
    files = ((stem, (folder or FOLDER) / f"{stem}.json") for stem in stems)
    return [Result(stem, json.loads(file.read_text(encoding="utf-8"))) for stem, file in files if file.is_file()]


def index() -> str:
    """The page that lists them, stale ones marked."""
    rows = [
        [
            f"[{r.stem}]({_page(r.stem)})",
            r.setting["processor"],
            r.setting["commit"],
            ", ".join(r.compilers) or "none is used",
            r.age,
            f"`{r.setting['command']}`",
        ]
        for r in results()
    ]
    table = report.markdown(["result", "processor", "commit", "compiler", "kernels", "command"], rows)
    return (
        "# Results\n\n"
        "Written by `python benchmarks/remeasure.py`, which measures the results that are named, or all stale ones. A\n"
        "result is stale where a kernel that it rests on was solved anew: its JSON has their digests.\n\n"
        f"{table}\n"
    )


@cache
def _digest(place: str) -> str:
    """The digest of the shipped kernel at that place, empty if there is none."""
    path = paths.shipped_kernels() / f"{place}.json"
    if not path.is_file():
        return ""
    return DEPTHWISE.read(path).program.digest if path.parent.name == DEPTHWISE.name else _of_kernel(path)


def _of_kernel(path: Path) -> str:
    return MATMUL.read(path).kernel.digest


def _page(stem: str) -> str:
    return next(f"{stem}{end}" for end in (".md", ".json") if (FOLDER / f"{stem}{end}").is_file())
