"""Every declared meaning is the machine's, and the test of it notices wrong meanings."""

import functools
import os
import subprocess
import sys

import numpy as np
import pytest
from mutants import EQUIVALENT, RULES, mutants, representatives
from suites import quick

from bitsynth import architecture
from bitsynth.build import runners, toolchain
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa import check, harness, load

pytestmark = pytest.mark.toolchains

ISAS = load.names()
EMULATED = [name for name in ISAS if architecture.named(load.load(name).table.arch).emulator]


@functools.cache
def unavailable(isa_name):
    """Why nothing can be compiled or run for this instruction set; empty if it can."""
    isa = load.load(isa_name)
    try:
        library = toolchain.probe(isa, toolchain.preferred(isa))
        runners.runner(isa, library, needs=isa.requirements(isa.instrs)).close()
    except ToolError as error:
        return str(error)
    return ""


@pytest.fixture(params=quick(("avx2", "neon"), of=ISAS))
def isa(request, skip_isa):
    if why := unavailable(request.param):
        skip_isa(request.param, why)
    return load.load(request.param)


@pytest.fixture(scope="module", params=quick(("neon",), of=ISAS))
def captured(request):
    """An instruction set, and what the machine gave for its representatives, by form."""
    if unavailable(request.param):
        return request.param, None
    forms = representatives(request.param)
    found = {f.name: [] for f in forms}
    for capture in harness.captures(load.load(request.param), forms)[1]:
        found[capture.form].append(capture)
    return request.param, found


@pytest.fixture
def study(captured, skip_isa):
    name, found = captured
    if found is None:
        skip_isa(name, unavailable(name))
    return load.load(name), found


def test_every_form_is_what_the_machine_does(isa):
    steps = []
    report = check.check_isa(isa, lambda done, total: steps.append((done, total)))
    assert report.failures == ()
    assert [r.form for r in report.results] == list(isa.instrs)
    assert steps == [(k + 1, len(steps)) for k in range(len(steps))]
    assert sum(r.cases for r in report.results) == len(steps)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qemu", "unicorn"])
@pytest.mark.parametrize("name", EMULATED)
def test_both_emulators_agree(name, kind, monkeypatch):
    monkeypatch.setenv("BITSYNTH_RUNNER", kind)
    report = check.check_isa(load.load(name))
    assert report.passed
    assert kind in report.by


@pytest.mark.slow
def test_every_compiler_gives_the_same(isa):
    for compiler in toolchain.compilers(isa):
        report = check.check_isa(isa, compiler=compiler)
        assert report.failures == (), compiler.name


OUTCOMES = [
    pytest.param("avx2", "", "1 skipped", marks=pytest.mark.slow),
    ("avx2", os.devnull, "skip not allowed: tests/differential/test_isa.py::test_every_form"),
    ("avx2, neon", "", "1 error"),
    ("z80", "", "z80"),
]


@pytest.mark.parametrize(("required", "allowed", "outcome"), OUTCOMES)
def test_what_is_required_is_not_skipped(required, allowed, outcome):
    test = f"{__file__}::test_every_form_is_what_the_machine_does[neon]"
    settings = {"BITSYNTH_REQUIRE_ISA": required, "BITSYNTH_ALLOWED_SKIPS": allowed}
    env = {**os.environ, "BITSYNTH_CC_AARCH64": "false", **settings}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert outcome in done.stdout + done.stderr
    assert (done.returncode == 0) == (outcome == "1 skipped")


@pytest.mark.parametrize("name", ISAS)
def test_the_record_is_of_the_present_declarations(name):
    check.require_tested(load.load(name).instrs.values())


def test_wrong_meanings_are_caught(study):
    isa, found = study
    caught = {}
    for instr in representatives(isa.name):
        for rule, mutant in mutants(instr):
            if (instr.name.rpartition(".")[0], rule) not in EQUIVALENT:
                assert wrong(mutant, found), f"{instr.name}: {rule} is not noticed: {mutant.lane}"
                caught.setdefault(rule, []).append(mutant.lane)
    assert sum(len({*lanes}) for lanes in caught.values()) >= 100
    assert len(caught) >= len(RULES) // 2


def wrong(mutant, found):
    try:
        return check.recheck(mutant, found[mutant.name]) is not None
    except SpecError:
        return True


def test_equivalent_meanings_are_not_caught(study):
    isa, found = study
    for instr in representatives(isa.name):
        for rule, mutant in mutants(instr):
            reason = EQUIVALENT.get((instr.name.rpartition(".")[0], rule))
            assert reason is None or not wrong(mutant, found), f"{instr.name}: {rule}, though {reason}"


@pytest.mark.parametrize("rule", RULES)
def test_every_kind_of_mistake_applies_somewhere(rule):
    assert any(name == rule for isa in ISAS for f in representatives(isa) for name, _ in mutants(f))


def test_one_lane_of_many_is_noticed(study):
    """A machine that is wrong in one bit of one lane of one record."""
    isa, found = study
    for captures in found.values():
        first = captures[0]
        out = first.out.copy()
        out[-1, -1] ^= np.uint64(1)
        broken = harness.Capture(first.form, first.imm, first.args, out)
        failure = harness.differs(isa[first.form], broken)
        assert failure is not None
        assert failure.got[:-1] == failure.want[:-1]
        assert failure.got[-1] == failure.want[-1] ^ 1
        assert first.form in str(failure)
