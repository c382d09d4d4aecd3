"""Code of README, docs and examples runs, and prints what they show."""

import contextlib
import doctest
import os
from typing import Any

import pytest
import typer
from support.markdown_blocks import PAGES, ROOT, all_blocks, bitsynth_commands, blocks, console, matches

from bitsynth import toolchain
from bitsynth.cli import main
from bitsynth.cli.app import app
from bitsynth.host import features
from bitsynth.isa import load


def marked(found):
    """A case a block, the slow ones in the slow suite."""
    return [pytest.param(b, id=b.where, marks=pytest.mark.slow if b.slow else ()) for b in found]


def pages(slow):
    """The Python of each page that has some: all of it where some is slow, or what is not."""
    found = {page: blocks(page, "python") for page in PAGES}
    taken = {page: code if slow else [b for b in code if not b.slow] for page, code in found.items()}
    return [
        pytest.param(code, id=str(page.relative_to(ROOT)))
        for page, code in taken.items()
        if code and slow <= any(b.slow for b in code)
    ]


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A folder to work in, with examples, and caches of its own but for compiled code; their place as pages show it."""
    monkeypatch.setenv("BITSYNTH_BUILD_CACHE", str(toolchain.cache_folder()))
    monkeypatch.delenv("BITSYNTH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path / "work")
    return lambda text: text.replace(str(tmp_path / "cache"), "~/.cache")


def require_processor(text):
    """Skip what is for an x86 processor with more than this one has: there is no emulator."""
    for isa in ("avx2", "avx512"):
        if f'"{isa}"' in text and not features.matches(load.load(isa).table):
            pytest.skip(f"{isa} code needs a processor with it; this one lacks it")


def run(code):
    """Blocks of a page, one after the other, in one namespace."""
    names = {"__name__": "__page__"}
    for block in code:
        require_processor(block.text)
        source = "\n" * (block.line - 1) + block.text
        exec(compile(source, str(block.page), "exec"), names)


@pytest.mark.parametrize("code", pages(slow=False))
def test_python_of_a_page_runs(code, fresh):
    run(code)


@pytest.mark.slow
@pytest.mark.parametrize("code", pages(slow=True))
def test_python_of_a_page_that_takes_longer_runs(code, fresh):
    run(code)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "pycon")], ids=lambda p: str(p.relative_to(ROOT)))
def test_a_session_of_python_answers_what_a_page_shows(page, fresh):
    text = "".join(block.text for block in blocks(page, "pycon"))
    require_processor(text)
    session = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert session.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session).failed == 0


@pytest.mark.parametrize("block", marked(all_blocks("console")))
def test_a_command_prints_what_a_page_shows(block, fresh, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for command, words in zip(console(block.text), bitsynth_commands(block), strict=True):
        code = main(words)
        out, err = capsys.readouterr()
        printed = fresh(out + err) + (f"exit code {code}\n" if code else "")
        assert matches(command.output, printed), f"{block.where}: $ {command.words}\n{printed}"


@pytest.mark.parametrize("block", marked(all_blocks("sh", "console")))
def test_a_command_takes_the_options_a_page_gives_it(block):
    for words in bitsynth_commands(block):
        command: Any = typer.main.get_command(app)
        rest = words
        while rest and rest[0] in getattr(command, "commands", ()):
            command, rest = command.commands[rest[0]], rest[1:]
        with contextlib.suppress(SystemExit):  # of --help
            command.make_context(" ".join(words), list(rest), color=False)


def test_what_is_shown_is_compared():
    assert matches("a 0.1 s\n...\nb ... d\n", "a   12.5 s\nx\ny\nb c d\n")
    assert matches("...\nb\n", "a\nb\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a\nb\n", "a\n")
    assert not matches("a ... c\n", "a b\n")
    assert not matches("a.c\n", "abc\n")


def test_every_page_is_looked_at():
    assert {"README.md", "CONTRIBUTING.md"} <= {page.name for page in PAGES if page.parent == ROOT}
    assert len(PAGES) > 20
    assert os.path.commonpath([*PAGES, ROOT]) == str(ROOT)
