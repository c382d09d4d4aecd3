"""Pages of the site that are generated as it is built: the command line's and the published results'."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
COMMAND_LINE = ROOT / "docs" / "command_line.py"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the figures and data that they show."""
    files.append(File.generated(config, "reference/cli.md", content=command_line()))
    for name, text in result_pages():
        files.append(File.generated(config, f"results/{name}", content=text))
    for path in RESULTS.iterdir():
        if path.suffix in (".json", ".svg"):  # of a plot's two files the one that stays sharp
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def command_line() -> str:
    """Return every command with its arguments and options, as typer documents them."""
    plain = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, str(COMMAND_LINE)]
    return _linked(html.unescape(subprocess.run(command, capture_output=True, text=True, check=True, env=plain).stdout))


def _linked(text: str) -> str:
    """The page whose lists of commands link to their sections, in place of typer's first few words of each."""
    lines, above, commands = [], "bitsynth", False
    for line in text.splitlines():
        if heading := re.fullmatch(r"#+ `(.*)`", line):
            above, commands = heading[1], False
        commands = commands or line == "**Commands**:"
        entry = re.match(r"\* `([\w-]+)`", line) if commands else None
        target = f"{above} {entry[1]}".replace(" ", "-") if entry else ""
        lines.append(f"* [`{entry[1]}`](#{target})" if entry else line)
    return "\n".join(lines) + "\n"


def result_pages() -> Iterator[tuple[str, str]]:
    """A page a published result: its own text where it has one, its setting, and its plot."""
    yield "list.md", (RESULTS / "README.md").read_text(encoding="utf-8").replace(".json)", ".md)")
    for path in sorted(RESULTS.glob("*.json")):
        page, plot = path.with_suffix(".md"), path.with_suffix(".svg")
        text = page.read_text(encoding="utf-8").replace(".png)", ".svg)") if page.is_file() else _setting(path)
        shown = f"\n![Plot of {path.stem}]({plot.name})\n" if plot.is_file() and plot.name not in text else ""
        yield page.name, f"{text}{shown}\n[All figures as JSON]({path.name})\n"


def _setting(path: Path) -> str:
    """What a result says of how it was measured, for one that has no text of its own."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    return "\n".join([f"# {path.stem}", "", *(f"- {key}: {value}" for key, value in facts["setting"].items()), ""])
