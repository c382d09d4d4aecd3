"""Bad arguments, missing tools, each error's exit code: one clear message."""

import errno
import json
import sys
import tempfile

import pytest
from support.run_commands import SYNTH, WIDTHS, shipped_file

from bitsynth import errors, paths
from bitsynth.cli import main
from bitsynth.isa import load
from bitsynth.sketches.popcount import compute
from bitsynth.store.matmul import MATMUL

KNOWN = ", ".join(load.names())
pytestmark = pytest.mark.usefixtures("user")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--isa", "sparc", *WIDTHS], f"unknown instruction set 'sparc'; known: {KNOWN}"),
        (["--isa", "ne[b]on", *WIDTHS], "unknown instruction set 'ne[b]on'"),
        (["--isa", "../neon", *WIDTHS], "unknown instruction set"),
        (["--isa", "neon", "--act-bits", "0", "--w-bits", "1"], "from 1 to 8, not 0"),
        (["--isa", "neon", "--act-bits", "1", "--w-bits", "9"], "from 1 to 8, not 9"),
        (["--isa", "neon", "--act-bits", "-1", "--w-bits", "1"], "from 1 to 8, not -1"),
        (["--isa", "neon", "--act-bits", "two", "--w-bits", "1"], "'--act-bits'"),
        (["--isa", "neon", "--act-bits", "1.5", "--w-bits", "1"], "'--act-bits'"),
        (["--isa", "neon", "--act-bits", "1"], "missing option '--w-bits'"),
        (["--isa", "neon", *WIDTHS, "--frobnicate"], "--frobnicate"),
        (["--isa", "neon", *WIDTHS, "extra"], "extra"),
        (["--isa", "neon", *WIDTHS, "--sketch", "clever"], "unknown sketch 'clever'; known: exact, paper"),
        (
            ["--isa", "neon", *WIDTHS, "--method", "guess"],
            "unknown method 'guess'; known: popcount, lookup, pairs, multiply, fip, dot",
        ),
        (
            ["--isa", "neon", *WIDTHS, "--cost", "z80"],
            "--cost is ops or length, not 'z80'; for the cycles of a processor",
        ),
        (
            ["--isa", "neon", *WIDTHS, "--cost", "a53"],
            "--cost is ops or length, not 'a53'; for the cycles of a processor",
        ),
        (["--isa", "neon", *WIDTHS, "--cpu", "z80"], "unknown cpu 'z80'; neon knows a53"),
        (["--isa", "neon", *WIDTHS, "--cpu", "ops"], "unknown cpu 'ops'; neon knows a53"),
        (["--isa", "neon", *WIDTHS, "--cpu", "a53", "--cost", "ops"], "leave out --cost"),
        (["--isa", "neon", *WIDTHS, "--sketch", "paper", "--cpu", "a53"], "leave out the method and the cost"),
        (["--isa", "neon", *WIDTHS, "--sketch", "paper", "--method", "lookup"], "leave out the method and the cost"),
        (["--isa", "neon", *WIDTHS, "--rlimit", "0"], "'--rlimit'"),
        (["--isa", "neon", *WIDTHS, "--weight-encoding", "bcd"], "'--weight-encoding'"),
        (["--isa", "neon", *WIDTHS, "--weight-encoding", "ternary"], "takes 2 bits, not 1"),
        (["--isa", "neon", "--act-bits", "3", "--w-bits", "1", "--act-encoding", "ternary"], "takes 2 bits, not 3"),
    ],
)
def test_bad_synth_arguments(fails, argv, message):
    assert message in fails(2, "synth", *argv)


@pytest.mark.parametrize("command", ["show", "verify"])
@pytest.mark.parametrize(
    "name",
    [
        "no_such_kernel",
        "bs_mm_a1u_w1b_s32_neon_9x9x9",
        "bs_mm_a9u_w1b_s32_neon_8x8x64",
        "bs_mm_a3t_w1b_s32_neon_8x8x64",
        "bs_mm_a1u_w1b_s32_sparc_8x8x64",
        "../../etc/passwd",
        "",
    ],
)
def test_unknown_kernels_are_refused(fails, command, name):
    fails(2, command, name)


def test_an_unknown_variant_is_refused(fails):
    assert "of variant 'paper-length'" in fails(2, "show", shipped_file().stem, "--variant", "paper-length")


@pytest.mark.parametrize("command", ["show", "check"])
def test_unknown_instruction_sets(fails, command):
    assert f"known: {KNOWN}" in fails(2, "isa", command, "sparc")


@pytest.mark.parametrize("argv", [["frobnicate"], ["isa", "frobnicate"], ["show"], ["--frobnicate"], ["list", "x"]])
def test_unknown_commands_are_refused(fails, argv):
    assert "--help`" in fails(2, *argv)


@pytest.mark.parametrize("command", ["compile", "emit-layer", "emit-glue", "export", "synth"])
def test_an_empty_output_is_refused(fails, command):
    """It would be this folder, which nobody named."""
    assert "want a path, such as . for this folder" in fails(2, command, "-o", "", "model")


def test_figures_go_to_stdout_alone(capsys, tmp_path, monkeypatch):
    """`--json -` is stdout; the table is on stderr, so that stdout is JSON."""
    monkeypatch.chdir(tmp_path)
    argv = ["explore", "--isa", "avx2", "--act-bits", "1", "--w-bits", "1", "--jobs", "1", "--json", "-"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "setting" in json.loads(out)
    assert "winner" in err
    assert not list(tmp_path.iterdir())


def test_export_says_that_it_wants_a_form(capsys):
    assert main(["export", "--help"]) == 0
    assert "Required: write" in capsys.readouterr().out


def test_spent_budget_is_undecided(fails, user):
    compute.forget()
    assert "--rlimit" in fails(3, *SYNTH, "--fresh", "--rlimit", "1")
    assert not list(user.rglob("*.json"))


def test_without_a_compiler_isa_check_says_what_to_install(fails, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "ziglang" else real(name, *a))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    assert "install" in fails(4, "isa", "check", "neon")


def test_bless_needs_a_folder_that_can_be_written(fails, tmp_path, monkeypatch):
    (tmp_path / "neon").symlink_to(paths.isa_specs() / "neon")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: (_ for _ in ()).throw(PermissionError(13, "Denied")))
    assert "cannot write to" in fails(4, "isa", "check", "neon", "--bless")


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (errors.NoKernel("the sketch is empty"), 1),
        (errors.Refuted("a [1 0] counterexample"), 1),
        (errors.SpecError("bad"), 2),
        (errors.Undecided("unknown"), 3),
        (errors.ToolError("cc failed"), 4),
        (OSError(errno.EIO, "Input/output error", "somewhere"), 4),
    ],
)
def test_every_error_has_its_code(fails, monkeypatch, raised, code):
    def raising(*args, **more):
        raise raised

    monkeypatch.setattr(MATMUL, "find", raising)
    message = fails(code, *SYNTH)
    assert (
        "somewhere: Input/output error" in message
        if code == 4 and isinstance(raised, OSError)
        else str(raised) in message
    )
