"""Emitters that are changed: where their C computes something else, the proof of machine code refuses it."""

import importlib
import shutil
from pathlib import Path

import pytest

from bitsynth.host import features
from bitsynth.progress import silent

pytestmark = pytest.mark.toolchains

BYTES = "bs_mm_a4u_w4b_s32_avx2_8x16x4"


@pytest.fixture
def module(monkeypatch):
    """`module(name)`: one of the benchmarks."""
    for package in ("capstone", "elftools"):
        pytest.importorskip(package)
    if features.arch() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs gcc for x86_64")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module


def test_a_line_is_changed_in_many_ways(module):
    changed = {*module("emitter_changes").change_line("        sums[at] += 3 * codes[k] << 2;")}
    assert {
        ("operator", "        sums[at] += 3 + codes[k] << 2;"),
        ("operator", "        sums[at] = 3 * codes[k] << 2;"),
        ("shift", "        sums[at] += 3 * codes[k] >> 2;"),
        ("shift", "        sums[at] += 3 * codes[k] << 1;"),
        ("constant", "        sums[at] += 4 * codes[k] << 2;"),
        ("index", "        sums[at] += 3 * codes[k + 1] << 2;"),
        ("another name", "        sums[to] += 3 * codes[k] << 2;"),
        ("left out", ""),
    } <= changed


def test_twelve_changes_are_of_text_that_emitters_have(module):
    subjects = module("emitter_subjects")
    named = [change for name in subjects.MISSED for change in subjects.KernelSubject(name).named_changes()]
    assert len(named) == 12
    assert {change.kind for change in named} <= {*module("emitter_changes").KINDS}


@pytest.mark.slow
def test_wrong_emitters_are_refused(module, monkeypatch, tmp_path):
    subject = module("emitter_subjects").KernelSubject(BYTES)
    named = subject.named_changes()[:2]
    monkeypatch.setattr(subject, "named_changes", lambda: named)
    unchanged, *outcomes = module("wrong_emitters").judge_changes(subject, 2, 2026, tmp_path, silent)
    assert unchanged.verdict == "proved"
    assert [(x.differs, x.verdict, x.check) for x in outcomes[:2]] == 2 * [((BYTES,), "refused", "microkernel")]
    drawn = [x.verdict for x in outcomes[2:] if x.differs]
    assert "refused" in drawn
    assert "WRONG: proved" not in drawn
