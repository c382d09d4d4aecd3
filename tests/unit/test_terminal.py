"""What commands write to terminals and pipes: lines that fit, colour where wanted, nothing that others made up."""

import itertools
import os
import re
import subprocess
import sys

import pytest
import typer
from rich.text import Text
from support.case_selection import quick
from support.run_commands import SYNTH, shipped, started, terminal

from bitsynth.cli import main, output
from bitsynth.cli.app import app
from bitsynth.isa import load
from bitsynth.store.matmul import MATMUL


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    """An empty user cache."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    MATMUL.forget()
    return tmp_path / "cache"


def uncoloured(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_a_list_of_all_is_a_page_on_a_terminal():
    out, code = terminal("list")
    assert code == 0
    assert "bs_mm_" not in out
    assert len(out.splitlines()) <= 24
    assert all(re.search(rf"^{name} +\d+ ", out, re.MULTILINE) for name in load.names())


def test_a_list_has_a_line_for_each_kernel_on_a_terminal():
    """A variant stands alone where a terminal has no room for `shipped`, and no cell is folded."""
    lines = uncoloured(terminal("list", "--isa", "avx2", "--variant", "lookup-c64")[0]).splitlines()
    rows = [line for line in lines if line.startswith("bs_mm_")]
    assert len(rows) > 4
    assert all(re.fullmatch(r"bs_mm_\w+ +lookup .*lookup-c64 *", row) and len(row) <= 80 for row in rows)
    assert not [line for line in lines if line.startswith("  ")]


def test_a_label_stands_alone_where_its_line_is_folded():
    lines = uncoloured(terminal("show", shipped())[0]).splitlines()
    assert max(map(len, lines)) <= 80
    claims = next(k for k, line in enumerate(lines) if line.startswith("claims    "))
    assert re.match(r" {10}\S", lines[claims + 1])
    assert output._fold_lines("wide  " + "a " * 60, output.console(sys.stdout)).count("\n") == 0


def test_help_is_wrapped_to_the_terminal():
    """Every line of a paragraph but the last is full: the next word does not fit."""
    lines = [line.strip() for line in uncoloured(terminal("tune", "--help", columns=100)[0]).splitlines()]
    start = next(k for k, line in enumerate(lines) if line.startswith("The layers are"))
    text = list(itertools.takewhile(bool, lines[start:]))
    assert len(text) > 2
    for line, after in itertools.pairwise(text):
        assert len(line) + 1 + len(after.split()[0]) > 97


def test_progress_line_ticks_in_a_terminal():
    seen, code = terminal(*SYNTH, "--method", "popcount", "--fresh")
    assert code == 0
    assert "neon A1W1, exact sketch" in seen
    live = [line for line in seen.splitlines() if "exact sketch" in line]
    assert len(set(re.findall(r"\d+\.\d s", "".join(live)))) > 1


@pytest.mark.parametrize("columns", quick([80], of=[80, 120]))
@pytest.mark.parametrize("command", quick([["isa", "list"]], of=[SYNTH, ["list"], ["isa", "list"]]))
def test_lines_fit_a_terminal(command, columns):
    seen, code = terminal(*command, columns=columns)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen).splitlines()
    assert not [line for line in plain if len(line) > columns and not line.startswith("wrote") and "/" not in line]
    assert not [line for line in plain if re.fullmatch(r"\d+ *", line)], "a folded name"


def test_colour_only_where_wanted():
    command = ["verify", shipped(), "--no-z3"]
    assert "\x1b[3" in terminal(*command)[0]
    assert "\x1b[3" not in terminal(*command, env={"NO_COLOR": "1"})[0]
    assert "\x1b[" not in terminal(*command, env={"TERM": "dumb"})[0]
    assert "\x1b[" not in started(*command).stdout


HOSTILE = "\x1b]0;owned\x1b[2J\x9b31m\u202egpj"
HARMLESS = r"\x1b]0;owned\x1b[2J\x9b31m\u202egpj"


def test_what_others_say_is_shown_and_not_obeyed(capsys):
    result = output.table("name")
    result.add_row(HOSTILE)
    output.write(result, HOSTILE, Text(HOSTILE))
    output.error(HOSTILE)
    output.warning(HOSTILE)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count(HARMLESS) == 5
    assert all(x.isprintable() or x == "\n" for x in shown.out + shown.err)


def test_a_live_line_shows_and_does_not_obey():
    show = f"with output.progress('t') as say: say({HOSTILE!r}); time.sleep(1)"
    code = f"import time\nfrom bitsynth.cli import output\n{show}"
    seen, _ = terminal(before=("-c", code))
    assert r"\x1b]0;owned" in seen
    assert "\x1b]" not in seen


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m bitsynth.cli isa show neon --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""
    assert done.returncode in (0, output.BROKEN_PIPE)


COMMANDS = [["--help"], [], ["--version"], ["list"], ["isa", "list"], ["isa", "show", "avx2"], ["show", "--help"]]
COMMANDS += [[name, "--help"] for name in typer.main.get_group(app).commands]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_goes_away_ends_any_command_alike(command, monkeypatch, capfd):
    """Also where typer and rich print: with the code of SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(command) == output.BROKEN_PIPE
    assert capfd.readouterr().err == ""


def test_output_that_cannot_be_spelled_does_not_fail(tmp_path):
    folder = tmp_path / "ü"
    done = started(*SYNTH, "-o", str(folder), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "\\xfc" in done.stdout
