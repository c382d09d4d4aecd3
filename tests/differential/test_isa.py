"""Every declared meaning is the machine's, and the test of it notices wrong meanings."""

import dataclasses
import functools
import os
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from support.case_selection import quick
from support.instruction_mutants import EQUIVALENT, OUTSIDE, RULES, VALUES, mutants, representatives, wrong_at
from support.isa_forms import own_forms

from bitsynth.conformance import check, harness
from bitsynth.conformance.inputs import FormTrial
from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.host import features
from bitsynth.host.facts import Facts
from bitsynth.host.placement import runs_natively
from bitsynth.isa import architecture, load, tested
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.run.runner import runner_for
from bitsynth.toolchain import compiler as compilers

pytestmark = pytest.mark.toolchains

ISAS = load.names()
EMULATED = [name for name in ISAS if architecture.find_architecture(load.load(name).table.arch).emulator]


@functools.cache
def unavailable(isa_name):
    """Why nothing can be compiled or run for this instruction set; empty if it can."""
    isa = load.load(isa_name)
    try:
        library = compilers.probe(isa, compilers.get_preferred(isa))
        runner_for(isa, library, needs=isa.requirements(isa.instrs)).close()
    except ToolError as error:
        return str(error)
    return ""


def available(name, skip_isa):
    if why := unavailable(name):
        skip_isa(name, why)
    return load.load(name)


@pytest.fixture(params=ISAS)
def isa(request, skip_isa):
    return available(request.param, skip_isa)


def as_declared(instr, imm):
    """What a machine gives that does what the declaration says."""
    tried = FormTrial(instr, imm)
    for args in tried.batches():
        lanes = instr(ConcreteDomain(), [list(a) for a in args], imm)
        out = np.stack([np.broadcast_to(x, args[0].shape[1]) for x in lanes])
        yield harness.Capture(instr.name, imm, tried.coverage, args, out)


def noticed(mutant, instr):
    """Whether `mutant` differs from `instr` with one of a few immediates."""
    imms = sorted({instr.imms[0], *instr.try_imm, instr.imms[-1]})
    return any(harness.differs(mutant, c) for imm in imms for c in as_declared(instr, imm))


def wrong(mutant, instr):
    """Whether `mutant` differs from `instr`, or has no meaning at all."""
    try:
        return noticed(mutant, instr)
    except SpecError:
        return True


@pytest.mark.parametrize("name", ["avx2", "neon"])
def test_forms_are_what_the_machine_does(name, skip_isa):
    """A few of every set that the fast suite has: all are checked in the slow one."""
    isa = available(name, skip_isa)
    forms = [form for form in isa.instrs if form.startswith(("and.u8", "add.u16", "add.u32", "tbl.u8x16"))]
    steps = []
    report = check.check_isa(isa, lambda message, done=0, total=None: steps.append((done, total)), forms=forms)
    assert report.failures == ()
    assert [r.form for r in report.results] == forms
    assert steps == [(k + 1, len(steps)) for k in range(len(steps))]
    assert sum(r.cases for r in report.results) == len(steps)
    assert {r.coverage.exhaustive for r in report.results} == {True, False}


@pytest.mark.slow
def test_every_form_is_what_the_machine_does(isa, monkeypatch):
    """Of forms that the set does not inherit the record has what has passed now; others are as they were tested."""
    with monkeypatch.context() as without:
        without.setattr(tested, "_digests", no_record)
        report = check.check_isa(isa, forms=(own := own_forms(isa)))
    assert report.failures == ()
    assert {r.form: r.cases for r in report.results} == {form: len(isa[form].imms) for form in own}
    assert all(r.inputs and r.coverage for r in report.results)
    record = tested._digests(isa.name)
    assert record.keys() == isa.instrs.keys()
    assert all(map(tested.is_tested, isa.instrs.values()))
    assert {form: record[form] for form in own} == {r.form: r.digest for r in report.results}


def no_record(isa):
    raise AssertionError(f"the record of {isa} was asked")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qemu", "unicorn"])
@pytest.mark.parametrize("name", EMULATED)
def test_both_emulators_agree(name, kind, monkeypatch):
    """On one form of every table."""
    monkeypatch.setenv("BITSYNTH_RUNNER", kind)
    report = check.check_isa(load.load(name), forms=one_of_each_table(name))
    assert report.passed
    assert kind in report.by


@pytest.mark.slow
def test_every_compiler_gives_the_same(isa):
    """One form of every fifth table each; the preferred one has all in `test_every_form_is_what_the_machine_does`."""
    for k, compiler in enumerate(compilers.compilers(isa)[1:]):
        report = check.check_isa(isa, forms=one_of_each_table(isa.name)[k % 5 :: 5], compiler=compiler)
        assert report.failures == (), compiler.name


def one_of_each_table(isa_name):
    own = own_forms(load.load(isa_name))
    return list({f.name.rpartition(".")[0]: f.name for f in representatives(isa_name) if f.name in own}.values())


OUTCOMES = [
    pytest.param("avx2", "", "1 skipped", marks=pytest.mark.slow),
    ("avx2", os.devnull, "skip not allowed: tests/differential/test_isa.py::test_every_form"),
    pytest.param("avx2, neon", "", "1 error", marks=pytest.mark.slow),
    ("z80", "", "z80"),
]


@pytest.mark.parametrize(("required", "allowed", "outcome"), OUTCOMES)
def test_what_is_required_is_not_skipped(required, allowed, outcome):
    test = f"{__file__}::test_every_form_is_what_the_machine_does[neon]"
    settings = {"BITSYNTH_REQUIRE_ISA": required, "BITSYNTH_ALLOWED_SKIPS": allowed}
    env = {**os.environ, "BITSYNTH_CC_AARCH64": "false", **settings}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "slow", "-n", "0", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert outcome in done.stdout + done.stderr
    assert (done.returncode == 0) == (outcome == "1 skipped")


@pytest.mark.parametrize("name", ISAS)
def test_the_record_is_of_the_present_declarations(name):
    tested.require_tested(load.load(name).instrs.values())


@pytest.mark.parametrize("name", quick(("neon",), of=ISAS))
def test_wrong_meanings_are_caught(name):
    caught: dict[str, list[str]] = {}
    for instr in representatives(name):
        for rule, mutant in mutants(instr):
            if (instr.name.rpartition(".")[0], rule) not in EQUIVALENT:
                assert wrong(mutant, instr), f"{instr.name}: {rule} is not noticed: {mutant.lane}"
                caught.setdefault(rule, []).append(mutant.lane)
    assert sum(len(set(lanes)) for lanes in caught.values()) >= 100
    assert len(caught) >= len(RULES) // 2


@pytest.mark.parametrize("name", quick((), of=ISAS))
def test_equivalent_meanings_are_not_caught(name):
    for instr in representatives(name):
        for rule, mutant in mutants(instr):
            reason = EQUIVALENT.get((instr.name.rpartition(".")[0], rule))
            assert reason is None or not wrong(mutant, instr), f"{instr.name}: {rule}, though {reason}"


@pytest.mark.parametrize("rule", RULES)
def test_every_kind_of_mistake_applies_somewhere(rule):
    assert any(name == rule for isa in ISAS for f in representatives(isa) for name, _ in mutants(f))


@pytest.mark.parametrize(("isa_name", "form", "where"), VALUES)
def test_a_meaning_wrong_at_one_value_is_caught(isa_name, form, where):
    instr = load.load(isa_name)[form]
    assert noticed(wrong_at(instr, where), instr)


@pytest.mark.parametrize(("isa_name", "form", "where"), OUTSIDE)
def test_a_value_outside_of_what_is_sampled_is_not_claimed(isa_name, form, where):
    instr = load.load(isa_name)[form]
    assert not noticed(wrong_at(instr, where), instr)
    assert not FormTrial(instr, instr.imms[0]).coverage.exhaustive


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for name, _, _ in VALUES}))
def test_the_machine_refutes_a_meaning_wrong_at_one_value(name, skip_isa):
    isa = available(name, skip_isa)
    for form, where in ((form, where) for other, form, where in VALUES if other == name):
        mutant = load.Isa(isa.table, {form: wrong_at(isa[form], where)})
        assert [f.form for f in check.check_isa(mutant).failures] == [form], where


def test_one_lane_of_many_is_noticed(skip_isa):
    """A machine that is wrong in one bit of one lane of one record."""
    isa = available("neon", skip_isa)
    instr = isa["uadalp.u8x16"]
    first = next(harness.captures(isa, [instr])[1])
    assert harness.differs(instr, first) is None
    out = first.out.copy()
    out[-1, -1] ^= np.uint64(1)
    failure = harness.differs(instr, dataclasses.replace(first, out=out))
    assert failure is not None
    assert failure.got[:-1] == failure.want[:-1]
    assert failure.got[-1] == failure.want[-1] ^ 1
    assert instr.name in str(failure)


@pytest.mark.parametrize("name", [n for n in ISAS if load.load(n).table.arch == features.arch()][:1])
def test_a_probe_that_denies_what_runs_is_refuted(name, skip_isa):
    isa = available(name, skip_isa)
    if not runs_natively(isa.table):
        pytest.skip(f"{name} code needs a processor with it; this one lacks it")
    asked, form = isa.table.host_features[-1], next(iter(isa.instrs))
    probes = {**isa.table.probes, asked: f"!{isa.table.probes[asked]}"}
    lying = load.Isa(msgspec.structs.replace(isa.table, probes=probes), isa.instrs)
    with pytest.raises(Refuted, match=f"this processor has {asked}, but !.* says it has not"):
        check.check_isa(lying, forms=[form])
    assert check.check_isa(isa, forms=[form]).passed


def test_a_system_that_an_emulator_runs_is_said_to_be_one(monkeypatch):
    """It runs its own forms natively, as it sees it."""
    monkeypatch.setattr(harness, "here", lambda: Facts(emulator="an emulator of programs"))
    items = [SimpleNamespace(compiler=SimpleNamespace(version="gcc 12"))]
    monkeypatch.setattr(harness, "compile_libraries", lambda isa, forms, compiler: items)
    monkeypatch.setattr(harness, "_start_runner", lambda isa, group: SimpleNamespace(description="natively on aarch64"))
    by, _ = harness.captures(load.load("neon"), [])
    assert by == "gcc 12, natively on aarch64, in a system run by an emulator of programs"
