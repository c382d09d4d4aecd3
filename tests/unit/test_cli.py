"""Every command of the command line: what it prints, and that `--json` prints nothing else."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys

import pytest
from support.case_selection import quick
from support.run_commands import SYNTH, WIDTHS, shipped, terminal
from support.solved_kernels import proved_entry

import bitsynth
from bitsynth import paths
from bitsynth.cli import checks, machines, main
from bitsynth.cli.app import COMMANDS, LazyCommand
from bitsynth.conformance import check as isa_check
from bitsynth.conformance.check import CheckReport, FormResult
from bitsynth.conformance.harness import Failure
from bitsynth.conformance.inputs import Coverage
from bitsynth.isa import load, tested
from bitsynth.isa.step import Step
from bitsynth.kernel import describe
from bitsynth.kernel.inputs import Planes, Table
from bitsynth.spec.options import METHODS
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.matmul import MATMUL

CONTRACT = {"name", "isa", "act_bits", "w_bits", "method", "ops_per_128_mac", "instructions", "lower_bound"} | {
    "minimal", "proved", "seconds", "files", "act_encoding", "weight_encoding", "sketch", "cost_model", "k_max"
} | {"loads_per_128_mac", "cycles", "cached", "runners_up"}  # fmt: skip


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    """An empty user cache."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    MATMUL.forget()
    return tmp_path / "cache"


@pytest.fixture
def run(ended):
    """Run a command in this process: its output, which is JSON where asked for."""

    def call(*argv, code=0):
        out, err = ended(code, *argv)
        return (json.loads(out) if "--json" in argv and code == 0 else out), err

    return call


@pytest.fixture
def listed(run, user, monkeypatch):
    """What `bitsynth list` says where nothing is shipped."""

    def call(*argv):
        with monkeypatch.context() as patch:
            patch.setattr(MATMUL, "every", lambda: iter(sorted(user.rglob("*.json"))))
            patch.setattr(DEPTHWISE, "every", lambda: iter(()))
            return run("list", *argv)[0]

    return call


def test_no_arguments_show_help(run):
    out, err = run()
    assert "Usage: bitsynth" in out
    assert err == ""
    for command in ("synth", "verify", "show", "list", "isa", "doctor"):
        assert command in out


@pytest.mark.smoke
def test_help_documents_exit_codes(run):
    out, _ = run("--help")
    text = " ".join(out.split())
    assert "Exit codes: 0 done; 1 no such kernel exists, or one was refuted; 2 bad input" in text
    assert "130 interrupted" in text


@pytest.mark.smoke
def test_version(run):
    assert run("--version") == (f"bitsynth {bitsynth.__version__}\n", "")


def test_starting_up_imports_no_solver_and_no_extra_package():
    code = "import sys; from bitsynth.cli import main; main(['list']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "bitsynth.cli" in loaded
    extra = {"optuna", "matplotlib", "onnx", "onnxruntime", "torch", "unicorn", "elftools"}
    assert not loaded & {"z3", "cffi", *extra}


def test_help_imports_no_command():
    code = "import sys; sys.argv = ['bitsynth']; from bitsynth.cli import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "msgspec", "jinja2", "bitsynth.isa", "bitsynth.cli.commands"}


def test_help_starts_with_networks(run):
    out, _ = run("--help")
    headings = [out.index(f" {heading} ") for heading in ("Networks", "Kernels", "Layers as C", "Machine")]
    assert headings == sorted(headings)
    first = [line.split()[1] for line in out[headings[0] :].splitlines()[1:3]]
    assert first == ["inspect", "compile"]
    bench = run("bench", "--help")[0]
    assert bench.index("network ") < bench.index("resnet18 ") < bench.index("kernels ")


def _entries(entries):
    for entry in entries:
        yield from _entries(entry.commands) if entry.commands else [entry]


@pytest.mark.parametrize("entry", [*_entries(COMMANDS)], ids=lambda entry: entry.function)
def test_summaries_are_first_paragraphs(entry):
    """Help of all commands shows a text that help of one begins with."""
    assert LazyCommand(entry).loaded.help.split("\n\n")[0] == entry.summary


def test_a_fault_in_a_value_is_told_in_plain_words(run):
    rest = "--w-bits", "1", "--isa", "neon"
    for options, message in (
        (("--act-bits", "x"), "invalid value for '--act-bits': want a whole number;"),
        (("--act-bits", "1", "--act-encoding", "odd"), "invalid value for '--act-encoding': 'odd' is not one of"),
        (("--act-bits", "1", "--k-step", "-1"), "invalid value for '--k-step': must be greater than or equal to 0;"),
    ):
        assert message in run("synth", *options, *rest, code=2)[1]


@pytest.mark.smoke
def test_synth_from_cache(run, user):
    out, err = run(*SYNTH)
    name = shipped(widths="a1u_w1b")
    lines = out.splitlines()
    assert [line[:9].strip() for line in lines] == ["proof", "method", "", "claims", "", "kernel", "wrote"]
    checked = r"proof    \d+ lemmas checked, \d+ on record +K up to [\d,]+ +\d+\.\d s$"
    assert re.match(checked, lines[0])
    assert lines[3].startswith(
        "claims   fewest popcounts and gates on one bit position   no steady loop takes less than "
    )
    assert lines[4].strip() == "claims are on record; `bitsynth verify` solves them again"
    assert re.match(
        r"method   popcount   next: lookup [\d.]+ ops per 128 MAC, multiply [\d.]+ ops per 128 MAC$", lines[1]
    )
    assert lines[2].strip() == "no kernel by dot"
    assert re.match(rf"kernel   {name}   [\d.]+ ops per 128 MAC \(paper 5\)   a53 [\d.]+, .* cycles$", lines[5])
    assert lines[6] == f"wrote    {user}/neon/{name}.c, .h, _features.c, _selftest.c   was cached"
    assert err == ""
    assert sorted(p.name for p in (user / "neon").iterdir()) == sorted(bitsynth.get_kernel("neon", 1, 1).files)


@pytest.mark.parametrize("cpu", ["", "a72", "a53"])
def test_synth_for_this_processor(run, tmp_path, monkeypatch, cpu):
    """The cached kernel for the processor, if it is known and there is one; else the one of fewest operations."""
    monkeypatch.setattr(machines, "widest", lambda isa: "neon")
    monkeypatch.setattr(machines, "cpu_here", lambda table: cpu)
    facts, err = run("synth", "--isa", "auto", *WIDTHS, "--json", "-o", str(tmp_path))
    assert (facts["isa"], facts["cost_model"]) == ("neon", cpu or "ops")
    assert ("has no cost model in neon: cycles are for a53" in err) == (not cpu)


def test_synth_json(run, tmp_path):
    facts, _ = run(*SYNTH, "--json", "-o", str(tmp_path / "out"))
    assert facts.keys() >= CONTRACT
    assert (facts["isa"], facts["act_bits"], facts["w_bits"]) == ("neon", 1, 1)
    assert facts["cached"]
    assert facts["proved"]
    kernel = bitsynth.get_kernel("neon", 1, 1)
    texts = {**kernel.files, **kernel.audit_files}
    assert {os.path.basename(f) for f in facts["files"]} == {*texts}
    for path in facts["files"]:
        with open(path, encoding="utf-8") as file:
            assert file.read() == texts[os.path.basename(path)]


@pytest.mark.parametrize(("act", "wgt"), [("signed", "ternary"), ("ternary", "unsigned"), ("bipolar", "signed")])
def test_synth_other_encodings(run, act, wgt):
    widths = ["--act-bits", "2", "--w-bits", "2"]
    facts, _ = run("synth", "--isa", "avx2", *widths, "--act-encoding", act, "--weight-encoding", wgt, "--json")
    assert f"_a2{act[0]}_w2{wgt[0]}_" in facts["name"]
    assert (facts["act_encoding"], facts["weight_encoding"]) == (act, wgt)
    assert facts["k_max"] == bitsynth.get_kernel("avx2", 2, 2, act, wgt).k_max


@pytest.mark.smoke
def test_synth_fresh_is_cached_then(run, user):
    facts, err = run(*SYNTH, "--fresh", "--json")
    assert err == ""
    assert not facts["cached"]
    assert [s["name"] for s in facts["stages"]] == ["popcount", "", "lookup", "multiply", "prove"]
    assert facts["method"] == "popcount"
    assert {x["method"] for x in facts["runners_up"]} == {"lookup", "multiply", "dot"}
    assert [p.stem for p in (user / "neon").glob("*.json")] == [facts["name"]]
    again, _ = run(*SYNTH, "--json")
    assert again["cached"]
    assert again["name"] == facts["name"]
    assert again["ops_per_128_mac"] == facts["ops_per_128_mac"]


def test_synth_fresh_says_what_it_found(run):
    out, _ = run(*SYNTH, "--fresh")
    lines = out.splitlines()
    labels = ["popcount", "", "lookup", "multiply", "prove", "method", "", "kernel", "wrote"]
    assert [line[:9].strip() for line in lines] == labels
    assert len({len(line) for line in lines[:5]}) == 1
    assert all(line.endswith(" s") for line in lines[:5])
    assert lines[-1].endswith("cached")


@pytest.mark.parametrize("method", quick(["lookup"], of=["lookup", "multiply"]))
def test_synth_of_one_method(run, listed, user, method):
    widths = ["--act-bits", "2", "--w-bits", "1"]
    facts, _ = run("synth", "--isa", "neon", *widths, "--method", method, "--fresh", "--json")
    assert (facts["method"], facts["runners_up"]) == (method, [])
    assert [p.parent.name for p in user.rglob("*.json")] == [method]
    assert run("synth", "--isa", "neon", *widths, "--method", method, "--json")[0]["cached"]
    shown, _ = run("show", facts["name"], "--variant", method, "--json")
    assert (shown["method"], shown["asked"]) == (method, method)
    assert method in listed()


@pytest.mark.slow
def test_synth_keeps_cost_models_apart(run, listed, user):
    facts, _ = run(*SYNTH, "--cpu", "a53", "--fresh", "--json")
    assert facts["cost_model"] == "a53"
    assert all(f"{user}/neon/a53/" in f for f in facts["files"])
    (kept,) = listed("--json")
    assert (kept["variant"], kept["from"]) == ("a53", "user")
    assert "user, a53" in listed()
    for name in (kept["name"], facts["name"]):
        shown, _ = run("show", name, "--variant", "a53", "--json")
        assert (shown["name"], shown["model"]) == (name, "a53")


@pytest.mark.slow
def test_synth_paper(run):
    facts, _ = run(*SYNTH, "--sketch", "paper", "--json")
    assert (facts["sketch"], facts["cost_model"]) == ("paper", "length")
    assert run(*SYNTH, "--sketch", "paper", "--json")[0]["cached"]


def test_a_kernel_for_an_in_order_processor_is_known_by_its_name(run, user):
    facts, _ = run("synth", "--isa", "neon", "--act-bits", "2", "--w-bits", "1", "--cpu", "a53", "--json")
    assert facts["name"].endswith("_for_a53")
    shown, _ = run("show", facts["name"], "--json")
    assert (shown["name"], shown["model"]) == (facts["name"], "a53")
    found, _ = run("verify", facts["name"], "--no-z3", "--json")
    assert found["composition_checked"]
    for other in ("64x4_for_a53", "48x4_for_a72"):
        assert "no kernel" in run("show", facts["name"].replace("48x4_for_a53", other), code=2)[1]


def test_unchanged_c_is_not_written_again(run, user):
    first, _ = run(*SYNTH, "--json")
    before = [os.stat(f).st_mtime_ns for f in first["files"]]
    run(*SYNTH)
    assert [os.stat(f).st_mtime_ns for f in first["files"]] == before


def test_list(run):
    out, err = run("list")
    assert err == ""
    for isa in ("neon", "avx2"):
        assert re.search(rf"^{shipped(isa)} +lookup +[\d.]+ +\d+ +yes .* shipped$", out, re.MULTILINE)
    rows, _ = run("list", "--json")
    assert len(rows) == sum(len(list(paths.shipped_kernels().rglob(f"bs_{kind}_*.json"))) for kind in ("mm", "dw"))
    assert all(r["problem"] is None for r in rows)
    assert {r["method"] for r in rows} == {*METHODS, "depthwise"}
    assert {"name", "ops_per_128_mac", "lower_bound", "minimal", "cycles", "k_max", "from", "variant"} <= rows[0].keys()


def test_list_and_show_have_depthwise_kernels(run):
    name = "bs_dw_a4_w4_s32_avx2_32x2"
    out, _ = run("list", "--variant", "depthwise", "--isa", "avx2", "--act-bits", "4")
    assert re.search(rf"^{name} +depthwise +19.56 +- +yes .* shipped, depthwise$", out, re.MULTILINE)
    page, _ = run("show", name)
    assert "flush after at most 72 steps, 14 instructions a pixel" in page
    assert "sums of channels 0-3 16-19 4-7 20-23 8-11 24-27 12-15 28-31" in page
    facts, _ = run("show", name, "--json")
    assert [len(x["program"]) for x in facts["program"]["flushes"]] == [12, 14, 14, 18, 18]
    assert f"void {name}(" in run("show", name, "--c")[0]


def test_list_and_show_have_elementwise_programs(run):
    out, _ = run("list", "--variant", "elementwise", "--isa", "avx2")
    assert re.search(r"^thresholds31_s32_words_avx2 +64 +\d+ +[\d.]+ .* shipped$", out, re.MULTILINE)
    rows, _ = run("list", "--variant", "elementwise", "--isa", "avx2", "--json")
    assert {"name", "isa", "method", "unit", "instructions", "cycles", "from", "problem"} <= rows[0].keys()
    assert "thresholds" not in run("list", "--isa", "avx2", "--all", "--act-bits", "2")[0]
    page, _ = run("show", "thresholds31_s32_words_avx2")
    assert "loop, 16 instructions a value of t" in page
    assert "meaning   sum(zext(bit(slt(t[k], s)), 8) for k in range(31))" in page
    facts, _ = run("show", "greatest_avx2", "--json")
    assert [step["text"].split()[2] for step in facts["program"]["program"]] == ["max.u8x32"]
    assert "void greatest_avx2(" in run("show", "greatest_avx2", "--c")[0]


def test_list_takes_what_fits_its_options(run):
    options = ["--isa", "neon,avx2", "--act-bits", "1-2", "--w-bits", "1", "--method", "lookup"]
    some, _ = run("list", *options, "--json")
    every, _ = run("list", "--json")
    wanted = [
        r
        for r in every
        if r["isa"] in ("neon", "avx2") and r["act_bits"] < 3 and r["w_bits"] == 1 and r["method"] == "lookup"
    ]
    assert some == wanted != []
    assert {r["variant"] for r in run("list", "--variant", "a53", "--isa", "neon", "--json")[0]} == {"a53"}
    assert run("list", *options, "--variant", "a99") == ("no kernel matches\n", "")


@pytest.mark.parametrize("option", [["--isa", "z80"], ["--method", "magic"], ["--act-bits", "9"]])
def test_list_of_what_cannot_be(fails, option):
    assert option[1] in fails(2, "list", *option)


def test_list_check(run, monkeypatch):
    some = [p for p in MATMUL.every() if p.stem in (shipped(), shipped("avx2"))]
    monkeypatch.setattr(MATMUL, "every", lambda: iter(some))
    out, err = run("list", "--check", "--act-bits", "2", "--w-bits", "1")
    assert err == ""
    assert shipped() in out


@pytest.mark.smoke
def test_verify(run):
    out, _ = run("verify", shipped())
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "memory", "table", "passes", "bit", "padding", "loop", "encoding", "recheck", "machine", "claims", "proved"
    ]  # fmt: skip
    assert re.search(r"machine +\d+ instruction lemmas +discharged by Z3, \d+ quer", out)
    assert "1 lemma" in next(line for line in lines if line.startswith("encoding"))
    found = "(same|another) kernel" if platform.machine() == "aarch64" else "same kernel"  # there Z3 is an older one
    assert re.search(f"solved again, {found}", out)
    assert lines[-1].startswith("proved   for every input, K up to ")


def test_verify_without_solver_says_so(run):
    out, _ = run("verify", shipped(), "--no-z3")
    assert "on record, not discharged" in out
    assert out.splitlines()[-1].endswith("the instruction lemmas were not discharged again")
    facts, _ = run("verify", shipped(), "--no-z3", "--json")
    assert facts["composition_checked"]
    assert not facts["instructions_discharged"]
    assert not facts["proved"]


def test_verify_without_solving_again_says_so(run):
    out, _ = run("verify", shipped(), "--no-minimality")
    assert "on record, not solved again" in out


def test_verify_names_the_encoding_asked_for(run):
    name = shipped(widths="a2u_w2b").replace("a2u_w2b", "a2s_w2t")
    facts, _ = run("verify", name, "--json", "--no-minimality")
    assert facts["name"] == name
    assert any("16 pairs of encodings are exact on all 225 pairs of codes" in x for x in facts["lemmas"])


SHOWN = {
    ("neon", "popcount", 2, 2): [" at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte", "popcount("],
    ("avx2", "lookup", 2, 2): ["table of a row: built in ", "x0 holds the values of codes ", "64 columns of act",
                               "table of 16 sums of 0 1 2 3 by code at positions 0 to 3", "pass 1, loop 1: after "],
    ("avx2", "multiply", 2, 2): ["bit 0, bit 1 at positions 0 to 3, 4 to 7, byte by byte",
                                 "in order of their 16-bit slots"],
    ("neon_dotprod", "dot", 3, 1): ["bit 0 at positions 4, 5, 6, 7, byte by byte", "step: 16 positions of K"],
    ("avx512", "lookup", 2, 1): ["table of 64 sums of 0 1 2 3 by code at positions 0 to 5", "permutexvar", " - "],
    ("neon", "lookup", 2, 1): ["first run of the step, ", "loop 1: after at most ", " runs of the step, "],
}  # fmt: skip


@pytest.fixture(params=SHOWN, ids=lambda c: "-".join(map(str, c)))
def kept(request, user):
    """A kernel of each method in the user's cache."""
    entry = proved_entry(*request.param)
    MATMUL.store(entry)
    return request.param, entry.entry


def programs(found):
    """Every line of a kernel's programs."""
    loops = [nested for p in found.passes for nested in p.loops]
    build = found.build.steps if found.build else ()
    return [*build, *(x for n in loops for x in (*n.steps, *n.first)), *(x for p in found.passes for x in p.flush)]


def test_show(run, kept):
    (isa, method, act_bits, w_bits), result = kept
    out, _ = run("show", result.name, "--variant", method)
    title = f"int32 product of {act_bits}-bit unsigned activations and {w_bits}-bit bipolar weights on {isa}"
    assert out.startswith(f"{result.name}\n{title}")
    for part in ("inputs: a of ", "flush: every ", "tile      starts at row + column", f"method    {method}"):
        assert part in out
    for part in SHOWN[kept[0]]:
        assert part in out
    assert not [line for line in out.splitlines() if line != line.rstrip()]
    for line in programs(result.kernel):
        assert f"  {line} " in out
    for number, loop in enumerate(result.kernel.passes):
        where = f"pass {number}, " if len(result.kernel.passes) > 1 else ""
        end = "carry" if loop.carries else "flush"
        assert f"\n{where}{end}: every {loop.flush_every:,} steps, " in out
        assert (f"\n{where}first run of the step, " in out) == bool(loop.step.first)


def test_show_c_is_the_source(run):
    output, _ = run("show", shipped(), "--c", "--json")
    out, _ = run("show", shipped(), "--c")
    assert output == {"name": shipped(), "source": out}
    assert out == bitsynth.get_kernel("neon", 2, 1).source


def test_show_json(run, kept):
    (_, method, *_), result = kept
    facts, _ = run("show", result.name, "--variant", method, "--json")
    found, steps = facts["kernel"], []
    for loop in found["passes"]:
        for nested in loop["loops"]:
            steps += nested["program"] + nested["first"]
        steps += loop["flush"]
        for given in (*loop["rows"], *loop["columns"]):
            assert given["text"]
            if given["type"] == "planes":
                assert all(t.keys() == {"text", "codes"} for t in given["tables"])
    steps += found["build"]["program"] if found["build"] else []
    assert all(step.keys() == {"text", "lane", "does", "cycles"} for step in steps)
    assert sorted(step["text"] for step in steps) == sorted(map(str, programs(result.kernel)))
    assert facts["act_encoding"] == "unsigned"
    assert facts["method"] == method


@pytest.mark.parametrize("kept", quick([("avx2", "lookup", 2, 2)], of=SHOWN), indirect=True, ids=str)
@pytest.mark.parametrize("columns", quick([80], of=[80, 120]))
def test_show_fits_a_terminal(kept, columns):
    (_, method, *_), result = kept
    seen, code = terminal("show", result.name, "--variant", method, columns=columns)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen).splitlines()
    assert not [line for line in plain if len(line) > columns]


@pytest.mark.parametrize(
    ("given", "slot_bytes", "text"),
    [
        (Planes((0b10,), 0, 8, 8), 8, "bit 0 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte"),
        (Planes((0b10,), 0, 1, 3, apart=4), 2, "bit 0 at positions 0 to 8 by 4, 1 to 9 by 4, byte by byte"),
        (Planes((0b10,), 4, 0, 4), 1, "bit 0 at positions 4 to 7"),
        (Planes((0b10,), 3, 0, 1), 1, "bit 0 at position 3"),
        (Planes((0b10,), 3, 0, 1), 4, "bit 0 at position 3 in every byte"),
        (Planes((0b1010, 0b1100), 2, 1, 1), 2, "bit 0, bit 1 at positions 2, 3, byte by byte"),
        (Table((0, 3), 4, 4), 1, "table of 16 sums of 0 3 by code at positions 4 to 7"),
    ],
)
def test_inputs_in_words(given, slot_bytes, text):
    bits = 1 if isinstance(given, Table) or given.tables == (0b10,) else 2
    assert describe.input_text(given, bits, slot_bytes) == text


def test_codes_of_two_bytes_in_words():
    text = "bit 0 at positions 0, 1, .., 7, 2 bytes by 2 bytes"
    assert describe.input_text(Planes((0b10,), 0, 1, 1), 1, 16, code_bytes=2) == text


@pytest.mark.parametrize(
    ("table", "bits", "text"),
    [
        (0b10, 1, "bit 0"),
        (0b1010, 2, "bit 0"),
        (0b1100, 2, "bit 1"),
        (0b0110, 2, "bit 0 ^ bit 1"),
        (0b1000, 2, "codes 3"),
        (0b10010110, 3, "bit 0 ^ bit 1 ^ bit 2"),
        (0b11101000, 3, "codes 3, 5, 6, 7"),
    ],
)
def test_planes_in_words(table, bits, text):
    assert describe.plane_text(table, bits) == text


def test_lanes_in_registers():
    neon = load.load("neon")
    assert describe.lane_text(neon["eor.u8x16"], Step.parse("t0 = eor.u8x16 a1 w0_2")) == "a1[i] ^ w0_2[i]"
    swapped = describe.lane_text(neon["bic.u8x16"], Step.parse("t0 = bic.u8x16 b a"))
    assert swapped == "b[i] & ~a[i]"
    assert describe.lane_text(neon["shl.u8x16"], Step.parse("t0 = shl.u8x16 t1 #3")) == "t1[i] << 3"
    wide = describe.lane_text(neon["uaddlp.u8x16"], Step.parse("t0 = uaddlp.u8x16 t9"))
    assert wide == "zext(t9[2 * i], 16) + zext(t9[2 * i + 1], 16)"


def test_isa_list(run):
    out, _ = run("isa", "list")
    assert re.search(r"^neon +\d+ +\d+ +128 ", out, re.MULTILINE)
    facts, _ = run("isa", "list", "--json")
    assert {f["name"] for f in facts} == set(load.names())
    assert all(f["tested"] == f["forms"] for f in facts)


def test_isa_without_arguments_shows_help(run):
    assert "Usage: bitsynth isa" in run("isa")[0]


@pytest.mark.parametrize("name", ["neon", "avx2", "avx512", "avxvnni"])
def test_isa_show(run, name):
    out, _ = run("isa", "show", name)
    forms, _ = run("isa", "show", name, "--json")
    isa = load.load(name)
    assert [f["name"] for f in forms["instructions"]] == list(isa.instrs)
    assert all(f"  {form} " in out for form in isa.instrs)


def test_isa_show_gives_types(run):
    out, _ = run("isa", "show", "neon")
    assert re.search(r"^  uadalp.u8x16 +acc u16x8, a u8x16 -> u16x8 +2 \(4\) .* yes$", out, re.MULTILINE)


def test_isa_show_finds_a_mnemonic_in_every_set(run):
    found, _ = run("isa", "show", "vpshufb", "--json")
    assert {(f["isa"], f["name"]) for f in found} >= {("avx2", "shuffle_epi8.u8x32"), ("avx512", "shuffle_epi8.u8x64")}
    assert all("vpshufb" in f["mnemonics"] for f in found)
    out, _ = run("isa", "show", "VPSHUFB")
    assert re.search(r"^avx2 +shuffle_epi8.u8x32 .*_mm256_shuffle_epi8\(\{t\}, \{x\}\) +vpshufb$", out, re.MULTILINE)


@pytest.mark.parametrize(("name", "forms"), [("uzp1", 7), ("uzp1.u32x2", 1)])
def test_isa_show_of_one_instruction(run, name, forms):
    out, _ = run("isa", "show", "neon", name)
    assert re.search(r"^  uzp1.u32x2 +vuzp1_u32\(\{a\}, \{b\}\) +uzp1 \| zip1$", out, re.MULTILINE)
    assert len(re.findall(r"^  uzp1\.", out, re.MULTILINE)) == 2 * forms
    assert "uzp2" not in out


def test_isa_show_of_an_instruction_of_two_features(run):
    out, _ = run("isa", "show", "avx512", "popcnt")
    assert out.index("popcnt [bitalg]") < out.index("popcnt.u16x32") < out.index("popcnt [vpopcntdq]")


def report(isa, *failures):
    wrong = {f.form: f for f in failures}
    results = (
        FormResult(n, i.digest, len(i.imms), 5, Coverage(8, () if n[-1] == "2" else (8,)), wrong.get(n))
        for n, i in isa.instrs.items()
    )
    return CheckReport(isa.name, "a compiler, a machine", tuple(results))


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of AVX2's declarations, without the record of their test."""
    shutil.copytree(paths.isa_specs() / "avx2", tmp_path / "isa" / "avx2", ignore=shutil.ignore_patterns("*.json"))
    monkeypatch.setattr(paths, "isa_specs", lambda: tmp_path / "isa")
    tested._digests.cache_clear()
    yield tmp_path / "isa" / "avx2"
    tested._digests.cache_clear()


def test_isa_check_blesses_what_passed(run, copied, monkeypatch):
    monkeypatch.setattr(isa_check, "check_isa", lambda isa, progress: report(isa))
    out, _ = run("isa", "check", "avx2")
    assert out.startswith("exhaustive  every value of the 8 bits that a lane depends on: ")
    assert re.search(r"^sampled     each lane: every value of 8 bits; .*: \d+ forms\n  add\.", out, re.MULTILINE)
    every = len(load.load("avx2").instrs)
    assert re.search(rf"^checked     {every} of {every} forms as declared", out, re.MULTILINE)
    assert not (copied / "checked.json").exists()
    facts, _ = run("isa", "check", "avx2", "--bless", "--json")
    assert facts["passed"]
    assert sorted(form for forms in facts["coverage"].values() for form in forms) == sorted(load.load("avx2").instrs)
    assert facts["record"] == str(copied / "checked.json")
    assert (copied / "checked.json").exists()


def test_isa_check_prints_what_differs(run, copied, monkeypatch):
    wrong = Failure("and.u8x32", 0, ((1,), (255,)), (1,), (254,))
    monkeypatch.setattr(isa_check, "check_isa", lambda isa, progress: report(isa, wrong))
    out, err = run("isa", "check", "avx2", "--bless", code=1)
    assert "and.u8x32 n=0 on [1], [ff]: the machine gives [1], the lane [fe]" in out
    assert err.startswith("error: avx2: 1 of ")
    assert err.endswith("nothing was recorded\n")
    assert not (copied / "checked.json").exists()
    assert main(["isa", "check", "avx2", "--json"]) == 1


@pytest.mark.slow
def test_isa_check_for_real(run):
    facts, _ = run("isa", "check", "neon", "--json")
    assert facts["passed"]
    assert facts["forms"] == len(load.load("neon").instrs)


@pytest.mark.smoke
def test_doctor(run):
    out, err = run("doctor")
    assert err == ""
    assert "z3-solver" in out
    assert "neon: " in out


def test_doctor_json(run, monkeypatch):
    findings = (checks.Finding("gcc", "", "compiles", "install gcc"), checks.Finding("qemu", "7.2", "runs", ""))
    given = checks.DoctorReport(findings, (checks.Verdict("neon", "cannot", "no compiler"),))
    monkeypatch.setattr(checks, "examine", lambda: given)
    facts, _ = run("doctor", "--json")
    assert not facts["ok"]
    assert [f["ok"] for f in facts["findings"]] == [False, True]
    assert "missing: install gcc" in run("doctor")[0]
