"""Files of the cache that are damaged, edited, forged, broken or misnamed."""

import json
import os

import pytest
from support.case_selection import quick
from support.run_commands import SYNTH, shipped_file

from bitsynth import paths
from bitsynth.cli import main, output
from bitsynth.errors import SpecError
from bitsynth.isa.step import from_builtins
from bitsynth.store.entry import FORMAT, Entry
from bitsynth.store.matmul import MATMUL

LOOKUP = "neon/bs_mm_a2u_w1b_s32_neon_6x64x4"

pytestmark = pytest.mark.usefixtures("user")


def seal(facts):
    """Give an edited entry the digest it calls for: an edit that knows the format."""
    facts["digest"] = ""

    entry = from_builtins(facts, Entry)
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


def refused(fails, stored, change, resealed, message):
    edited(stored, change, resealed)
    for argv in (
        SYNTH,
        ["verify", shipped_file().stem],
        ["show", shipped_file().stem],
        ["show", shipped_file().stem, "--c"],
    ):
        assert message in fails(2, *argv)


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
    message = fails(1, "verify", shipped_file().stem)
    assert f"solved again, the sketches give other {FORGED[change]} than the file claims" in message


def test_a_stored_sentence_is_not_told_as_a_fact(works, stored, capsys):
    """What is minimal is said in the program's own words, and as a claim on record."""
    edited(stored, one_claim_more, resealed=True)
    for argv in (SYNTH, ["show", shipped_file().stem], ["verify", shipped_file().stem, "--no-minimality"]):
        assert main(argv) == 0
        out = capsys.readouterr().out
        assert "no kernel on earth" not in out
        assert "on record" in out


@pytest.mark.parametrize(
    ("change", "resealed"),
    quick(
        [(cheaper, True)],
        of=[(change, k % 2 == EDITS.index(cheaper) % 2) for k, change in enumerate(EDITS)],
        spread=True,
    ),
)
def test_an_edited_cache_file_is_solved_anew(works, stored, change, resealed):
    edited(stored, change, resealed)
    assert not works(*SYNTH, "--fresh")["cached"]
    assert works(*SYNTH)["cached"]


@pytest.mark.parametrize("bits", [-1, 0, 9, 1 << 40, -(1 << 63)])
def test_a_table_of_too_many_codes_is_refused_before_it_is_made(tmp_path, bits):
    facts = json.loads((paths.shipped_kernels() / f"{LOOKUP}.json").read_text())
    facts["kernel"]["passes"][0]["rows"][0]["bits"] = bits
    file = tmp_path / "neon" / f"{LOOKUP.split('/')[1]}.json"
    file.parent.mkdir()
    file.write_text(json.dumps(facts))
    with pytest.raises(SpecError, match=r"Expected `int` [<>]= \d - at `\$.kernel.passes\[0\].rows\[0\].bits`"):
        MATMUL.read(file)


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
    with open(shipped_file(), "rb") as file:
        data = BROKEN[how](file.read())
    with open(stored, "wb") as file:
        file.write(data)
    message = fails(2, *SYNTH)
    assert str(stored) in message
    assert "delete it, or run `bitsynth synth --fresh`" in message
    fails(2, "verify", shipped_file().stem)
    os.unlink(stored)
    assert works(*SYNTH)["cached"]


@pytest.mark.usefixtures("few")
def test_a_broken_file_is_a_row_of_the_list(capsys, stored):
    with open(stored, "w", encoding="utf-8") as file:
        file.write("{")
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert any(shipped_file().stem in line and line.endswith("user, broken") for line in out.splitlines())
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
    (user / "neon" / shipped_file().name).mkdir(parents=True)
    assert "is not a regular file" in fails(2, *SYNTH)
