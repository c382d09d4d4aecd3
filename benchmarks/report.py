"""Output of every benchmark: the setting it ran in, tables, and one clear line on failure."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench import setting as measured
from bitsynth.bench.setting import Basis
from bitsynth.cli import INTERRUPTED
from bitsynth.cli.output import require_writable
from bitsynth.errors import BitsynthError, ToolError
from bitsynth.host.placement import sets_of

WIDTHS = [(x, y) for x in range(1, 5) for y in range(1, 5)]
LAYER_WIDTHS = ((1, 1), (2, 1), (2, 2))
"""Widths in benchmarks of layers."""
PACKAGES = ("bitsynth", "z3-solver", "numpy")


def setting(*isas: str) -> dict[str, str]:
    """Machine, processor, compilers for `isas`, versions, commit and command."""
    return measured.setting(PACKAGES, isas)


def facts(basis: Basis, isas: Iterable[str] = (), **figures: Any) -> dict[str, Any]:
    """The facts of a result (`bench.setting.facts`)."""
    return measured.facts(basis, isas, PACKAGES, **figures)


def layers_basis(isa: str, widths: Sequence[tuple[int, int]]) -> Basis:
    """The basis of figures of layers on `isa`: the kernels that they choose from."""
    return Basis(measured.digests(sets_of(isa), widths, layers=True))


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Arguments of a benchmark, whose help is its docstring: so far whether it prints JSON."""
    result = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--json", action="store_true", help="print JSON")
    return result


def timing_parser(doc: str | None, rounds: int) -> argparse.ArgumentParser:
    """Arguments of a benchmark that times here, so many rounds by default."""
    result = parser(doc)
    result.add_argument("--isa", default="avx2", help="an instruction set this processor has")
    result.add_argument("--rounds", type=int, default=rounds, help="samples of all that is timed")
    result.add_argument("--only", type=widths, help="one configuration")
    result.add_argument("--results", type=folder, help="the folder where results are written")
    return result


def folder(text: str) -> Path:
    """A folder that results are written to; ToolError now if it could not be written to after long work."""
    path = Path(text).absolute()
    require_writable(next(p for p in (path, *path.parents) if p.exists()), "choose another folder")
    return Path(text)


def widths(text: str) -> tuple[int, int]:
    """The bits in `A2W1`."""
    match = re.fullmatch(r"[aA]([1-8])[wW]([1-8])", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is none of A1W1 to A8W8")
    return int(match[1]), int(match[2])


def heading(rows: dict[str, str]) -> str:
    """The setting as aligned lines."""
    width = max(map(len, rows))
    return "\n".join(f"{key:{width}}  {value}" for key, value in rows.items())


def columns(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table: first column to the left, others to the right."""
    cells = [list(map(str, row)) for row in (titles, *rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(titles))]
    return "\n".join(
        "  ".join(f"{cell:{'<' if c == 0 else '>'}{widths[c]}}" for c, cell in enumerate(row)).rstrip() for row in cells
    )


def markdown(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The same table as Markdown."""
    lines = [titles, ["---"] + ["---:"] * (len(titles) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in lines)


def tell(found: Mapping[str, Any], *tables: tuple[Sequence[str], Sequence[Sequence[object]]], as_json: bool) -> None:
    """Print facts as JSON, or the setting and tables of titles and rows."""
    if as_json:
        print(json.dumps(found))
    else:
        print(heading(found["setting"]), *(columns(*table) for table in tables), sep="\n\n")


def write(folder: Path, stem: str, title: str, doc: str, found: Mapping[str, Any], *blocks: str) -> None:
    """Write a benchmark's result: `found` as JSON, and a page in Markdown.

    The page has the first paragraph of the benchmark's docstring, the `blocks`, and then how it was measured: the other
    paragraphs and the setting.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    what, _, how = doc.strip().partition("\n\n")
    lines = how.splitlines()
    words = "\n".join(f"`{line.strip()}`" if line.startswith("    ") else line for line in lines)
    rows = {**found["setting"], "kernels": f"{len(found['kernels']) or 'none'}; their digests are in {stem}.json"}
    about = "\n".join(f"- {key}: {value}" for key, value in rows.items())
    text = "\n\n".join([f"# {title}", what, *blocks, "## How it was measured", words, about])
    (folder / f"{stem}.md").write_text(text + "\n", encoding="utf-8")


def yes(met: bool) -> str:
    """The word for a verdict."""
    return "yes" if met else "no"


def run(main: Callable[[], int]) -> None:
    """Exit with what `main` returns; an error a user can meet is one line and its exit code."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BitsynthError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        print(f"{Path(sys.argv[0]).name}: {absent(error)}", file=sys.stderr)
        sys.exit(ToolError.exit_code)


def absent(error: ModuleNotFoundError) -> str:
    """Advice on what to install for a package that is not there."""
    return f"the package {error.name} is not installed: pip install 'bitsynth[bench,emulator]'"
