"""Benchmarks: statistics, loops, which kernels are found, what is printed. No time is judged."""

import json
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
from support.case_selection import quick

from bitsynth import paths
from bitsynth.bench import kernels, loop_times, loops
from bitsynth.bench.kernels import COUNT_MODEL, KernelRow, KernelsReport
from bitsynth.bench.setting import Basis
from bitsynth.bench.statistics import Summary, rank_correlation
from bitsynth.cli.reports import kernel_times
from bitsynth.errors import Refuted, SpecError
from bitsynth.host import features
from bitsynth.isa import baseline_loops, load
from bitsynth.store.matmul import MATMUL

NATIVE = pytest.mark.skipif(not {"avx2", "fma"} <= features.features(), reason="this processor lacks AVX2 or FMA")


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    """An empty user cache."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    MATMUL.forget()
    return tmp_path / "cache"


def test_summaries():
    assert Summary.of([5, 1, 4, 2, 3]) == Summary(3, 2, 4, 5)
    assert Summary.of([5, 1, 4, 2, 3]).spread == pytest.approx(2 / 3)
    assert Summary.of([7]) == Summary(7, 7, 7, 1)


def test_rank_correlation():
    assert rank_correlation([1, 2, 3], [10, 11, 500]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(0.8660254)
    assert rank_correlation([1, 1], [1, 2]) is None
    assert rank_correlation([1], [1]) is None


@pytest.mark.parametrize("act_bits", quick([1], of=[1, "*"]))
def test_every_kernel_is_found(act_bits):
    found = kernels.cached_kernels("avx2", () if act_bits == "*" else {act_bits}).kernels
    files = {p.name for p in (paths.shipped_kernels() / "avx2").glob(f"**/bs_mm_a{act_bits}u_*.json")}
    assert {f"{k.name}.json" for k, _ in found} == files
    assert len({k.source for k, _ in found}) == len(found)
    some = kernels.cached_kernels("avx2", {1, 2}, {3}).kernels
    assert {(k.spec.act.bits, k.spec.wgt.bits) for k, _ in some} == {(1, 3), (2, 3)}


def test_no_kernel_is_found():
    command = "bitsynth synth --isa avx2 --act-bits 7 --w-bits 1"
    with pytest.raises(SpecError, match=rf"no cached kernel A7W\* for avx2; `{command}` makes one"):
        kernels.cached_kernels("avx2", {7})


def test_variants_and_broken_files(user):
    (user / "avx2" / "exact-zen5").mkdir(parents=True)
    shipped = next((paths.shipped_kernels() / "avx2").glob("bs_mm_a1u_w1b_*.json"))
    shutil.copy(shipped, user / "avx2" / "bs_mm_a2u_w1b_s32_avx2_9x8x32.json")
    (user / "avx2" / "exact-zen5" / "bs_mm_oddly.json").write_text("{}")
    answer = kernels.cached_kernels("avx2", {2}, {1})
    assert {k.spec.act.bits for k, _ in answer.kernels} == {2}
    assert len(answer.problems) == 2
    assert all(str(user) in str(p) for p in answer.problems)


@pytest.mark.parametrize("isa", load.names())
def test_baselines_are_declared(isa):
    tables = {b.name: b.table for b in baseline_loops.load(load.load(isa))}
    assert {t.function for t in tables.values()} == {"fp32", "int8"}
    assert all(t.rows * t.columns * t.k_step > 0 for t in tables.values())


def test_a_wrong_baseline_table(tmp_path, monkeypatch):
    isa = load.load("avx2")
    (tmp_path / "avx2" / "baselines").mkdir(parents=True)
    (tmp_path / "avx2" / "baselines" / "baselines.toml").write_text("[fp64]\nrows = 'two'\n")
    monkeypatch.setattr(paths, "isa_specs", lambda: tmp_path)
    with pytest.raises(SpecError, match=r"baselines\.toml: "):
        baseline_loops.load(isa)


@NATIVE
def test_baseline_loop():
    baseline = next(b for b in baseline_loops.load(load.load("avx2")) if b.name == "fp32")
    loop = loops.baseline_loop(baseline)
    assert loop.operand_bytes <= int(loops.L1_SHARE * loops.l1_bytes())
    assert loop.macs == baseline.table.rows * baseline.table.columns * loop.k
    wrong = {**baseline.files, "fp32.c": baseline.files["fp32.c"].replace("a += ROWS", "a += 0")}
    with pytest.raises(Refuted, match="avx2: the baseline fp32 multiplies wrong"):
        loops.baseline_loop(replace(baseline, files=wrong))


@NATIVE
def test_kernel_loop():
    kernel, _ = kernels.cached_kernels("avx2", {1}, {1}).kernels[0]
    loop = loops.kernel_loop(kernel)
    assert loop.operand_bytes <= int(loops.L1_SHARE * loops.l1_bytes())
    assert loop.k == 576
    assert all(a.ctypes.data % 64 == 0 for a in loop.arguments if isinstance(a, np.ndarray))
    loop.repeat(3)


def test_what_does_not_fit_is_cut():
    assert loops._fit_steps(100, lambda n: n * int(loops.L1_SHARE * loops.l1_bytes()) // 10) == 10
    assert loops._fit_steps(100, lambda n: n) == 100
    assert loops._fit_steps(1, lambda n: 10 * int(loops.L1_SHARE * loops.l1_bytes())) == 1


def test_rounds_are_interleaved(monkeypatch):
    now, order, heard = [0], [], []

    def job(name, nanoseconds):
        def run(calls):
            now[0] += calls * nanoseconds
            order.append(name)

        return run

    monkeypatch.setattr(time, "thread_time_ns", lambda: now[0])
    a, b = (loops.TimedLoop(n, n, (), 1, 1, 1, None) for n in "ab")
    monkeypatch.setattr(
        loops.TimedLoop, "repeat", lambda self, calls: job(self.name, {"a": 10, "b": 20}[self.name])(calls)
    )
    samples = loop_times.measure_interleaved(
        [a, b], job("clock", 16), 3, lambda message, done=0, total=None: heard.append((done, total))
    )
    assert order[-18:] == ["clock", "clock", "a", "a", "b", "b"] * 3
    assert heard == [(1, 3), (2, 3), (3, 3)]
    assert samples.nanoseconds.tolist() == [[10] * 3, [20] * 3]
    assert samples.clock.tolist() == [loops.CLOCK_CYCLES / 16] * 3
    assert samples.cycles.tolist() == [[20] * 3, [40] * 3]


def row(name, bits, cycles, speed):
    exact = Summary.of([cycles])
    return KernelRow(
        name,
        "popcount",
        bits[0],
        bits[1],
        "4x8x32",
        576,
        12800,
        4096,
        exact,
        None if speed is None else Summary.of([speed]),
        {"fp32": Summary.of([8 / cycles])},
        {COUNT_MODEL: 3.9, "zen5": 0.79},
        {},
    )


def test_kernels_have_the_cycles_of_processors_with_issue_rules(capsys):
    ruled = replace(row("neon", (2, 1), 4, None), scoreboard={"a53": 7.371, "a72": 4.2})
    kernel_times.show(replace(report("instructions"), kernels=(ruled, row("other", (1, 1), 2, None))))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [x[-4:] for x in lines if x[:1] in (["kernel"], ["A1W1"], ["A2W1"])] == [
        ["a53", "scoreboard", "a72", "scoreboard"],
        ["3.90", "0.79", "-", "-"],
        ["3.90", "0.79", "7.37", "4.20"],
    ]


def report(unit="cycles"):
    timed = unit == "cycles"
    speeds = (100.0, 50.0, 75.0) if timed else (None, None, None)
    kernels = [("slow", (2, 1), 4), ("other", (1, 2), 2), ("fast", (2, 1), 2)]
    return KernelsReport(
        isa="avx2",
        unit=unit,
        run="natively on x86_64" if timed else "emulated by unicorn",
        compiler="gcc 12",
        clock_ghz=Summary.of([4.0]) if timed else None,
        baselines=(replace(row("fp32", (None, None), 8, speeds[1]), peak={"zen5": 32.0}),),
        kernels=tuple(row(*k, s) for k, s in zip(kernels, speeds, strict=True)),
        rank_correlation={"zen5": 0.5} if timed else {COUNT_MODEL: None},
        left_out={"int8": "needs avx_vnni"},
        problems=(SpecError("broken.json is broken"),),
    )


def test_timed_table(capsys):
    kernel_times.show(report())
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines == [
        "avx2 natively on x86_64, gcc 12, 4.00 GHz; one tile, K = 576; medians of 1 sample",
        "",
        "baseline tile K GMAC/s IQR MAC/cycle peak zen5 what",
        "fp32 4x8x32 576 50.0 0.0% 16.0 32 (50%) popcount",
        "",
        "kernel tile GMAC/s IQR x fp32 cycles zen5",
        "A1W2 4x8x32 50.0 0.0% 4.00 2.00 0.79",
        "A2W1 4x8x32 75.0 0.0% 4.00 2.00 0.79",
        "A2W1 4x8x32 100.0 0.0% 2.00 4.00 0.79",
        "",
        "rank correlation (Spearman) of cycles with the model: zen5 0.500",
        "",
    ]
    assert "avx2: no baseline int8: needs avx_vnni" in err
    assert "broken.json is broken" in err


def test_counted_table_tells_no_time(capsys):
    kernel_times.show(report("instructions"))
    out, _ = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == (
        "avx2 emulated by unicorn, gcc 12; one tile, K = 576; instructions executed, which are no times"
    )
    assert lines[2:4] == ["baseline tile K a call what", "fp32 4x8x32 576 800 popcount"]
    assert lines[5:7] == [
        "kernel tile a call x fp32 executed ops+loads zen5",
        "A1W2 4x8x32 200 4.00 2.00 3.90 0.79",
    ]
    assert lines[-2] == "rank correlation (Spearman) of instructions with the model: ops+loads none"


def test_times_of_kernels_are_written_as_json():
    answer = json.loads(kernel_times.as_json([report()], Basis({}, "c0ffee")))
    assert answer["setting"].keys() >= {"machine", "processor", "python", "bitsynth", "command"}
    assert answer["setting"]["commit"] == "c0ffee"
    (only,) = answer["sets"]
    assert only["problems"] == ["broken.json is broken"]
    assert only["kernels"][0]["gmac_per_second"] == {"median": 100.0, "low": 100.0, "high": 100.0, "samples": 1}
