"""The record of what was tested: what gets in, and what it vouches for."""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest

from bitsynth import paths
from bitsynth.conformance import check
from bitsynth.conformance.check import CheckReport, FormResult
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa import load, tested

ISA = load.load("avx2")


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The path of AVX2's record in a folder of its own."""
    shutil.copytree(paths.isa_specs() / "avx2", tmp_path / "avx2", ignore=shutil.ignore_patterns("*.json"))
    monkeypatch.setattr(paths, "isa_specs", lambda: tmp_path)
    tested._digests.cache_clear()
    yield tmp_path / "avx2" / "checked.json"
    tested._digests.cache_clear()


def report(**changes):
    results = tuple(FormResult(n, i.digest, len(i.imms), 1) for n, i in ISA.instrs.items())
    return dataclasses.replace(CheckReport("avx2", "a compiler, a machine", results), **changes)


def without(form):
    return report(results=tuple(r for r in report().results if r.form != form))


def changed(instr):
    return dataclasses.replace(instr, lane=f"{instr.lane} & 127")


def test_nothing_is_tested_without_a_record(record):
    assert not tested.is_tested(ISA["and.u8x32"])
    with pytest.raises(SpecError, match=r"avx2: and.u8x32 is not differential-tested .* isa check avx2 --bless"):
        tested.require_tested([ISA["and.u8x32"]])


def test_what_is_blessed_is_tested(record):
    assert check.bless(ISA, report(), report(by="another")) == record
    tested.require_tested(ISA.instrs.values())
    assert json.loads(record.read_text())["by"] == "a compiler, a machine; another"
    assert list(json.loads(record.read_text())["digests"]) == sorted(ISA.instrs)
    assert [p.name for p in record.parent.glob("checked*")] == ["checked.json"]


def test_blessing_again_gives_the_same_bytes(record):
    check.bless(ISA, report())
    first = record.read_bytes()
    check.bless(ISA, report())
    assert record.read_bytes() == first
    assert first.endswith(b"}\n")


def test_a_changed_declaration_is_not_tested(record):
    check.bless(ISA, report())
    instr = ISA["and.u8x32"]
    assert tested.is_tested(instr)
    for other in (changed(instr), dataclasses.replace(instr, text="f({a}, {b})"), dataclasses.replace(instr, name="x")):
        assert not tested.is_tested(other)
    assert tested.is_tested(dataclasses.replace(instr, doc="Words.", cost={}, mnemonics=("vandps",)))


def test_an_incomplete_report_is_refused(record):
    with pytest.raises(SpecError, match=r"does not cover avx2 as it is now: xor.u8x32"):
        check.bless(ISA, without("xor.u8x32"))
    stale = tuple(dataclasses.replace(r, digest="0") for r in report().results)
    with pytest.raises(SpecError, match="does not cover"):
        check.bless(ISA, report(results=stale))
    with pytest.raises(SpecError, match="says nothing about avx2"):
        check.bless(ISA, report(isa="neon"))
    with pytest.raises(SpecError, match="no report"):
        check.bless(ISA)
    assert not record.exists()


def test_a_failure_is_refused(record):
    from bitsynth.conformance.harness import Failure

    failure = Failure("and.u8x32", 0, ((1, 2), (3, 4)), (1, 0), (0, 0))
    results = (dataclasses.replace(report().results[0], failure=failure), *report().results[1:])
    bad = report(results=results)
    assert not bad.passed
    assert report().passed
    with pytest.raises(SpecError, match=r"and.u8x32 n=0 on \[1 2\], \[3 4\]: the machine gives \[1 0\]"):
        check.bless(ISA, report(), bad)
    assert not record.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"by": 1, "digests": {}}', '{"by": "x"}', '{"by": "x", "digests": {'])
def test_a_broken_record_is_one_error(record, text):
    record.write_text(text)
    with pytest.raises(SpecError, match=r"checked\.json: .*run `bitsynth isa check avx2 --bless`"):
        tested.is_tested(ISA["and.u8x32"])


def test_a_folder_that_cannot_be_written_is_a_tool_error(record):
    shutil.rmtree(record.parent)
    record.parent.touch()
    with pytest.raises(ToolError, match="cannot write"):
        check.bless(ISA, report())


def test_asking_is_cheap():
    code = "import sys; import bitsynth.conformance.check; print(sorted({'z3', 'cffi', 'unicorn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
