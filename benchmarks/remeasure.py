"""Measure published results anew, each with its own command, and write the text that is generated from them.

    python benchmarks/remeasure.py [--list | --publish | --stale | RESULT ...]

Without names nothing is measured; `--stale` measures results that are missing or older than their kernels. Commands
that time anything (`--list` says which) need a quiet machine. Commands run from the checkout's folder with the programs
in PATH. At the end the list of results and the tables of README and docs are written, and stale results are marked.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import published
import report
import tables

from bitsynth.errors import SpecError, ToolError

ROOT = Path(__file__).parent.parent


def wanted(given: argparse.Namespace) -> list[str]:
    """The results to measure; SpecError for one that is none."""
    if unknown := [stem for stem in given.results if stem not in published.COMMANDS]:
        raise SpecError(f"unknown result {unknown[0]!r}; known: {', '.join(published.COMMANDS)}")
    fresh = {result.stem for result in published.results() if not result.stale} if given.stale else published.COMMANDS
    return [stem for stem in published.COMMANDS if stem in given.results or stem not in fresh]


def measure(stem: str) -> None:
    """Run its command; ToolError if that gives no result. Exit code 1 is of a figure that is not reached."""
    words = shlex.split(published.COMMANDS[stem])
    given = dict(word.split("=", 1) for word in words if word.startswith("BITSYNTH_"))
    called = words[len(given) :]
    program = [sys.executable, "-m", "bitsynth.cli"] if called[0] == "bitsynth" else [sys.executable]
    start, file = time.time(), published.FOLDER / f"{stem}.json"
    print(f"{stem}: {published.COMMANDS[stem]}", flush=True)
    code = subprocess.run([*program, *called[1:]], cwd=ROOT, env={**os.environ, **given}, check=False).returncode
    print(f"{stem}: exit code {code}, {time.time() - start:.0f} s", flush=True)
    if code not in (0, 1) or not file.is_file() or file.stat().st_mtime < start:
        raise ToolError(f"{published.COMMANDS[stem]} ended with exit code {code} and no new {file}")


def publish() -> None:
    """Write the list of results and the tables of README and docs."""
    (published.FOLDER / published.INDEX).write_text(published.index(), encoding="utf-8")
    for page in tables.PAGES:
        page.write_text(tables.filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", nargs="*", metavar="RESULT", help=f"of {', '.join(published.COMMANDS)}")
    parser.add_argument("--stale", action="store_true", help="also what is older than its kernels, or missing")
    parser.add_argument("--list", action="store_true", help="print the commands, first the ones that time")
    parser.add_argument("--publish", action="store_true", help="only write what is generated from results")
    given = parser.parse_args()
    stems = wanted(given)
    if given.list or not (stems or given.publish or given.stale):
        for stem in stems or published.COMMANDS:
            print(f"{stem}{' (timed)' if stem in published.TIMED else ''}: {published.COMMANDS[stem]}")
        return 0
    for stem in stems:
        measure(stem)
        publish()
    publish()
    return 0


if __name__ == "__main__":
    report.run(main)
