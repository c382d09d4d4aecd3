"""Bad input, broken caches, full disks, interrupts: one clear message, its exit code, nothing half-written."""

import ctypes
import errno
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import msgspec
import pytest
from suites import quick

from bitsynth import errors, paths
from bitsynth.cli import main, output
from bitsynth.isa import load
from bitsynth.proof import checker
from bitsynth.sketches.popcount import compute
from bitsynth.store import kernels
from bitsynth.store.entry import FORMAT, Entry

KNOWN = ", ".join(load.names())
WIDTHS = ["--act-bits", "1", "--w-bits", "1"]
SYNTH = ["synth", "--isa", "neon", *WIDTHS]
ONE_METHOD = [*SYNTH, "--method", "popcount"]
COMMAND = [sys.executable, "-m", "bitsynth.cli"]
pytestmark = pytest.mark.usefixtures("user")


@pytest.fixture
def works(capsys):
    """Run a command that must succeed: its JSON."""

    def call(*argv):
        assert main([*argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def shipped():
    return next((paths.shipped_kernels() / "neon").glob("bs_mm_a1u_w1b_*.json"))


@pytest.fixture
def stored(user):
    """The shipped kernel in the user's cache, to be broken."""
    (user / "neon").mkdir(parents=True)
    return shutil.copy(shipped(), user / "neon" / shipped().name)


@pytest.fixture
def few(user, monkeypatch):
    """`bitsynth list` lists the user's kernels and one that is shipped."""
    every = kernels.every
    monkeypatch.setattr(kernels, "every", lambda: (p for p in every() if p.is_relative_to(user) or p == shipped()))


def files(folder):
    """All files but locks."""
    return [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"]


def strays(folder):
    """Files that a write left unfinished."""
    return [p for p in files(folder) if p.name.startswith(".") or p.stat().st_size == 0]


@pytest.mark.parametrize(
    ("argv", "said"),
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
            "unknown method 'guess'; known: popcount, lookup, pairs, multiply, dot",
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
def test_bad_synth_arguments(fails, argv, said):
    assert said in fails(2, "synth", *argv)


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
def test_unknown_kernels(fails, command, name):
    fails(2, command, name)


def test_unknown_variant(fails):
    assert "of variant 'paper-length'" in fails(2, "show", shipped().stem, "--variant", "paper-length")


@pytest.mark.parametrize("command", ["show", "check"])
def test_unknown_instruction_sets(fails, command):
    assert f"known: {KNOWN}" in fails(2, "isa", command, "sparc")


@pytest.mark.parametrize("argv", [["frobnicate"], ["isa", "frobnicate"], ["show"], ["--frobnicate"], ["list", "x"]])
def test_unknown_commands(fails, argv):
    assert "--help`" in fails(2, *argv)


def test_spent_budget_is_undecided(fails, user):
    compute.forget()
    assert "--rlimit" in fails(3, *SYNTH, "--fresh", "--rlimit", "1")
    assert not list(user.rglob("*.json"))


def seal(facts):
    """Give an edited entry the digest it calls for: an edit that knows the format."""
    facts["digest"] = ""

    entry = msgspec.convert(facts, Entry)
    facts["digest"] = entry.expected_digest
    return facts


def edited(stored, change, resealed):
    with open(stored, encoding="utf-8") as file:
        facts = json.load(file)
    change(facts)
    with open(stored, "w", encoding="utf-8") as file:
        json.dump(seal(facts) if resealed else facts, file)


def innermost(facts):
    return facts["kernel"]["passes"][0]["loops"][0]


def wrong_gate(facts):
    step = innermost(facts)["program"]
    step[0] = step[0].replace("eor", "and")
    assert "and" in step[0]


def wrong_first_run(facts):
    first = innermost(facts)["first"]
    first[0] = first[0].replace("eor", "and")
    assert "and" in first[0]


def cheaper(facts):
    facts["cost"]["ops_per_128_mac"] = 1.0


def fewer_lemmas(facts):
    facts["certificate"]["lemmas"].pop()


def fewer_instructions(facts):
    facts["certificate"]["instructions"].pop()


def later_flush(facts):
    innermost(facts)["times"] += 1000


def larger_k(facts):
    facts["certificate"]["k_max"] += 1


def more_bits(facts):
    facts["kernel"]["act_bits"] = 9


def other_name(facts):
    facts["name"] = facts["name"].replace("a1u", "a2u")


def unknown_instruction(facts):
    innermost(facts)["program"][0] = "t0 = frob.u8x16 a0 w0_0"


def other_method(facts):
    facts["method"] = "lookup-2"


def other_model(facts):
    facts["model"] = "a53"


def unknown_runner_up(facts):
    facts["runners_up"][0]["method"] = "guess"


def method_it_is_not(facts):
    facts["method"] = "dot"


def less_than_nothing(facts):
    facts["runners_up"][0]["cost"] = -1e300


EDITS = [
    wrong_gate,
    wrong_first_run,
    cheaper,
    fewer_lemmas,
    fewer_instructions,
    later_flush,
    larger_k,
    more_bits,
    other_name,
]
EDITS += [unknown_instruction, other_method, other_model, unknown_runner_up, method_it_is_not, less_than_nothing]


@pytest.mark.parametrize("change", quick([wrong_gate], of=EDITS))
def test_a_damaged_cache_file_is_refused(fails, stored, change):
    refused(fails, stored, change, False, "was edited or damaged")


@pytest.mark.parametrize("change", EDITS)
def test_an_edited_cache_file_is_refused(fails, stored, change):
    refused(fails, stored, change, True, "does not check")


def refused(fails, stored, change, resealed, said):
    edited(stored, change, resealed)
    for argv in (SYNTH, ["verify", shipped().stem], ["show", shipped().stem], ["show", shipped().stem, "--c"]):
        assert said in fails(2, *argv)


def one_claim_more(facts):
    facts["certificate"]["minimality"].append("1x1: no kernel on earth is cheaper: unsat")


def lower_bound_met(facts):
    """What makes a kernel that is not minimal look as if it were."""
    facts["cost"]["lower_bound"] = round(facts["cost"]["lower_bound"] + 0.01, 2)


def dearer_runner_up(facts):
    priced = next(x for x in facts["runners_up"] if x["cost"] is not None)
    priced["cost"] += 1


FORGED = {
    one_claim_more: "claims of minimality",
    lower_bound_met: "lower bound",
    dearer_runner_up: "runners-up",
}


@pytest.mark.parametrize("change", quick([one_claim_more], of=list(FORGED)))
def test_a_forged_claim_is_refuted_by_solving_again(fails, works, stored, change):
    """The proof of the product stands, so the kernel can be used; what the file claims besides is not believed."""
    edited(stored, change, resealed=True)
    assert works(*SYNTH)["proved"]
    said = fails(1, "verify", shipped().stem)
    assert f"solved again, the sketches give other {FORGED[change]} than the file claims" in said


def test_a_stored_sentence_is_not_told_as_a_fact(works, stored, capsys):
    """What is minimal is said in the program's own words, and as a claim on record."""
    edited(stored, one_claim_more, resealed=True)
    for argv in (SYNTH, ["show", shipped().stem], ["verify", shipped().stem, "--no-minimality"]):
        assert main(argv) == 0
        out = capsys.readouterr().out
        assert "no kernel on earth" not in out
        assert "on record" in out


@pytest.mark.parametrize("change", quick([cheaper], of=EDITS))
@pytest.mark.parametrize("resealed", quick([True], of=[False, True]))
def test_an_edited_cache_file_is_solved_anew(works, stored, change, resealed):
    edited(stored, change, resealed)
    assert not works(*SYNTH, "--fresh")["cached"]
    assert works(*SYNTH)["cached"]


def truncated(data):
    return data[: len(data) // 2]


def flipped(data):
    at = data.index(b"cnt.u8x16")
    return data[:at] + b"d" + data[at + 1 :]


def of_another_version(data):
    return data.replace(b'"format": %d' % FORMAT, b'"format": 999')


BROKEN = {
    "truncated": truncated,
    "flipped": flipped,
    "of_another_version": of_another_version,
    "empty": lambda data: b"",
    "binary": lambda data: bytes(range(256)),
    "a_list": lambda data: b"[]",
    "nested": lambda data: b"[" * 100_000,
    "extra": lambda data: data.replace(b'"format"', b'"surprise": 1, "format"'),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_cache_file_is_refused(fails, works, stored, how):
    with open(shipped(), "rb") as file:
        data = BROKEN[how](file.read())
    with open(stored, "wb") as file:
        file.write(data)
    said = fails(2, *SYNTH)
    assert str(stored) in said
    assert "delete it, or run `bitsynth synth --fresh`" in said
    fails(2, "verify", shipped().stem)
    os.unlink(stored)
    assert works(*SYNTH)["cached"]


@pytest.mark.usefixtures("few")
def test_a_broken_file_is_a_row_of_the_list(capsys, stored):
    with open(stored, "w", encoding="utf-8") as file:
        file.write("{")
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert any(shipped().stem in line and line.endswith("user, broken") for line in out.splitlines())
    assert err.startswith(f"warning: {stored} is not a kernel")
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["path"] for r in rows if r["problem"]] == [str(stored)]


@pytest.mark.usefixtures("few")
def test_a_broken_file_is_listed_under_the_set_it_lies_in(capsys, user, monkeypatch):
    (user / "neon_dotprod").mkdir(parents=True)
    (user / "neon_dotprod" / "bs_mm_a1u_w1b_s32_neon_dotprod_7x8x64.json").write_text("{")
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    assert main(["list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    yours = {row[0]: row[3] for row in rows if len(row) >= 4}
    assert (yours["neon"], yours["neon_dotprod"]) == ("-", "1")


@pytest.mark.usefixtures("few")
def test_a_warning_is_one_line(capsys, user):
    name = "bs_mm_a1u_w1b_s32_neon_1\nx8x64"
    (user / "neon").mkdir(parents=True)
    (user / "neon" / f"{name}.json").write_text("{")
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    escaped = name.replace("\n", r"\n")
    assert any(escaped in line and line.endswith("user, broken") for line in out.splitlines())
    assert err.count("\n") == 1
    assert err.startswith(f"warning: {user}/neon/{escaped}.json is not a kernel")


@pytest.mark.usefixtures("few")
def test_a_renamed_file_is_a_row_of_the_list(capsys, stored, user):
    os.rename(stored, user / "neon" / "bs_mm_a1u_w1b_s32_neon_7x8x64.json")
    assert main(["list"]) == 0
    assert "holds bs_mm_a1u_w1b" in capsys.readouterr().err


def test_a_folder_of_a_kernels_name(fails, user):
    (user / "neon" / shipped().name).mkdir(parents=True)
    assert "is not a regular file" in fails(2, *SYNTH)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("argv", [SYNTH, [*SYNTH, "--fresh"]])
def test_a_cache_that_cannot_be_a_folder(fails, tmp_path, monkeypatch, argv):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "file" / "cache"))
    assert "choose another folder with BITSYNTH_CACHE or -o" in fails(4, *argv)
    assert main(["list"]) == 0


def test_an_output_that_cannot_be_a_folder(fails, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write" in fails(4, *SYNTH, "-o", str(tmp_path / "file"))
    assert "cannot write" in fails(4, *SYNTH, "--fresh", "-o", str(tmp_path / "file"))


def without_privilege():
    """What to put before a command so that even root must heed permissions."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root may write to read-only folders, and there is no setpriv to forbid it")
    return ["setpriv", "--bounding-set=-dac_override"]


def test_a_read_only_cache(user):
    user.mkdir(mode=0o555)
    command = [*without_privilege(), *COMMAND, *SYNTH]
    for argv in ([], ["--fresh"]):
        done = subprocess.run([*command, *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 4
        assert done.stderr.startswith("error: cannot write ")
        assert "Permission denied; choose another folder with BITSYNTH_CACHE or -o" in done.stderr
    subprocess.run([*command, "-o", user.parent / "out"], check=True)


@pytest.mark.parametrize("call", ["replace", "fchmod", "fstat"])
def test_a_full_disk(fails, works, user, monkeypatch, call):
    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        assert "No space left on device" in fails(4, *ONE_METHOD, "--fresh")
        assert "No space left on device" in fails(4, *SYNTH)
    assert not files(user)
    assert works(*SYNTH)["cached"]


def test_a_full_disk_is_noticed_before_the_work(fails, monkeypatch):
    from bitsynth.synth import synthesize

    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    monkeypatch.setattr(synthesize, "synthesize", lambda *a, **k: pytest.fail("worked in vain"))
    assert "No space left on device" in fails(4, *SYNTH, "--fresh")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "argv",
    [
        ["--version"],
        pytest.param(["list"], marks=pytest.mark.slow),
        pytest.param(["list", "--json"], marks=pytest.mark.slow),
        pytest.param(["show", shipped().stem, "--c"], marks=pytest.mark.slow),
    ],
)
def test_an_output_that_is_full(argv):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([*COMMAND, *argv], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr == "error: No space left on device\n"


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

    monkeypatch.setattr(kernels, "find", raising)
    said = fails(code, *SYNTH)
    assert "somewhere: Input/output error" in said if code == 4 and isinstance(raised, OSError) else str(raised) in said


def test_an_interrupt_has_its_code(capsys, monkeypatch):
    def raising(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(checker, "check", raising)
    assert main(SYNTH) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


class Converted:
    """An argument of a foreign function, such as terms of Z3 are."""

    @classmethod
    def from_param(cls, value):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_became_another_exception(capsys, monkeypatch):
    """Ctypes says ArgumentError where an argument's conversion is interrupted."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x)
    convert: Any = Converted
    function.argtypes = [convert]
    monkeypatch.setattr(checker, "check", lambda *args, **more: function(1))
    assert main(SYNTH) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_an_interrupt_that_was_lost(capsys, monkeypatch):
    """Python forgets one in a finalizer."""

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    checked = checker.check
    monkeypatch.setattr(checker, "check", lambda *args, **more: (Finalized(), checked(*args, **more))[1])
    assert main([*SYNTH, "--json"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["numpy", "msgspec", "typer"])
def test_an_interrupt_while_starting_up(tmp_path, module):
    text = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(10)"
    (tmp_path / f"{module}.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [*COMMAND, "list"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def solving(*argv):
    """A fresh synthesis, returned once its progress line shows the solver at work."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "synth", "--isa", "neon", "--act-bits", "3", "--w-bits", "3", "--fresh", *argv],
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    seen = b""
    while b"gates" not in seen:
        seen += os.read(master, 4096)
    return process, master


SAID = {signal.SIGINT: b"interrupted", signal.SIGTERM: b"terminated", signal.SIGHUP: b"hung up"}
FIRST = [(0.0, signal.SIGINT), (0.6, signal.SIGTERM), (0.3, signal.SIGHUP)]
MORE = [(random.Random(n).uniform(0, 4), signal.SIGINT) for n in range(12)]


@pytest.mark.parametrize("moment", quick(FIRST[:2], of=[*FIRST, *MORE]), ids=lambda m: f"{m[1].name}-{m[0]:.2f}s")
def test_a_signal_in_the_middle_of_a_solve(user, works, moment):
    (delay, number), (process, master) = moment, solving()
    time.sleep(delay)
    process.send_signal(number)
    seen = b""
    try:
        while more := os.read(master, 4096):
            seen += more
    except OSError:
        pass
    out, _ = process.communicate(timeout=30)
    os.close(master)
    assert process.returncode == 128 + number
    assert out == b""
    assert SAID[number] in seen
    assert b"Traceback" not in seen
    assert not files(user)
    assert works(*SYNTH)["cached"]


@pytest.mark.slow
def test_two_processes_write_the_same_kernel(user, works):
    both = [
        subprocess.Popen([*COMMAND, *ONE_METHOD, "--fresh", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    found = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0]
    assert [err for _, err in found] == [b"", b""]
    names = {json.loads(out)["name"] for out, _ in found}
    assert len(names) == 1
    assert not strays(user)
    assert [p.stem for p in user.rglob("*.json")] == list(names)
    assert works(*ONE_METHOD)["cached"]


def test_processes_that_store_other_tiles_leave_one(user):
    """Each waits between writing its own file and removing what it saw of the others."""
    code = (
        "import sys, time; from pathlib import Path; from bitsynth.store import kernels\n"
        "seen = kernels._files\n"
        "kernels._files = lambda *a: (time.sleep(0.5), found := seen(*a), time.sleep(0.5))[1]\n"
        "from bitsynth.spec.options import KernelOptions; from bitsynth.store.entry import ProvedEntry\n"
        "kernels.store(ProvedEntry(kernels.load_entry(Path(sys.argv[1])).proved, KernelOptions(), (), 0.0))"
    )
    other = next((shipped().parent / "popcount-c64").glob(f"{shipped().stem.rsplit('_', 1)[0]}_*.json"))
    both = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for path in (shipped(), other)]
    assert [p.wait(timeout=60) for p in both] == [0, 0]
    assert len(list(user.rglob("*.json"))) == 1
