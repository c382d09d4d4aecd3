"""The benchmark of layers with subjects that only pretend: order, ratios, sums, what is shown. No time is judged."""

import csv
import io
import json
import re
import time
from typing import Any

import numpy as np
import pytest
from support.case_selection import quick
from support.layer_cases import machine, usable

from bitsynth.bench.call_times import LocalSubject, sample_calls
from bitsynth.bench.layer_forms import FORMS, LayerForm
from bitsynth.bench.layers import SUM, LayersReport, measure, rows
from bitsynth.bench.low_bit_layers import in_form
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer
from bitsynth.bench.statistics import Summary
from bitsynth.cli.reports import layer_times
from bitsynth.errors import Refuted

SMALL = ResNetLayer("T", 5, 6, 70, 3, 2)
SUBJECTS = [
    LocalSubject("torch fp32", "fp32", {}, 1),
    LocalSubject("ort fp32", "fp32", {}, 1),
    LocalSubject("torch int8", "int8", {}, 1),
    LocalSubject("A1W1", "bitsynth", {}, 1),
]
TIMES = {
    "torch fp32": (80_000, 120_000),
    "ort fp32": (160_000, 60_000),
    "torch int8": (40_000, 20_000),
    "A1W1": (10_000, 20_000),
}


def report(subjects=SUBJECTS, left_out=None):
    times = np.array([[[t, t, 2 * t] for t in TIMES[c.name]] for c in subjects], float)
    about = {"torch": {"version": "2", "instructions": "AVX2"}}
    return LayersReport("avx2", 1, rows(subjects, ["C2", "C3"], times), about, left_out or {})


def test_layers_are_the_papers():
    assert [layer.name for layer in LAYERS] == [f"C{n}" for n in range(2, 13)]
    millions = [round(layer.macs / 1e6, 1) for layer in LAYERS]
    assert millions == [115.6, 12.8, 57.8, 6.4, 115.6, 57.8, 6.4, 115.6, 57.8, 6.4, 115.6]
    assert [layer.out_height for layer in LAYERS] == [56, 56, 28, 28, 28, 14, 14, 14, 7, 7, 7]


@pytest.mark.parametrize(("threads", "clock", "first"), [(1, "thread_time_ns", 30), (2, "perf_counter_ns", 1010)])
def test_every_call_is_timed_by_its_clock(monkeypatch, threads, clock, first):
    now = [0]
    calls: list[int] = []

    def call():
        calls.append(len(calls))
        now[0] += 10 * len(calls)

    for name in ("thread_time_ns", "perf_counter_ns"):
        monkeypatch.setattr(time, name, (lambda: now[0]) if name == clock else None)
    assert sample_calls(call, 3, threads) == [first, first + 10, first + 20]


def test_subjects_take_turns():
    order = []

    class Fake:
        def __init__(self, name, kind, times):
            self.name, self.kind, self.times = name, kind, iter(times)

        def time(self, layer, repeats):
            order.append((self.name, layer, repeats))
            return [next(self.times), 1000]

    heard = []
    some: list[Any] = [Fake("a", "fp32", (8, 6, 8, 6)), Fake("b", "bitsynth", (4, 2, 2, 1))]
    found = measure(some, ["C2", "C3"], 2, 5, lambda *done: heard.append(done))
    assert order == [(n, layer, 5) for layer in ("C2", "C3") for n in "ab"] * 2
    assert heard == [("measuring, rounds", 1, 2), ("measuring, rounds", 2, 2)]
    assert [r.nanoseconds.median for r in found] == [8, 6, 14, 3, 1.5, 4.5]
    assert found[-1].against["fp32"].times == Summary.of([14 / 6, 14 / 3])


def test_a_subject_of_this_process_is_timed():
    calls = []
    local = LocalSubject("mine", "bitsynth", {"C2": lambda: calls.append("C2"), "C3": lambda: calls.append("C3")}, 1)
    assert len(local.time("C3", 4)) == 4
    assert set(calls) == {"C3"}


def test_the_fastest_baseline_of_every_layer_counts():
    found = report()
    (c2, c3, total) = (found.row("A1W1", layer).against for layer in ("C2", "C3", SUM))
    assert (c2["fp32"].baseline, c2["fp32"].times.median) == ("torch fp32", 8)
    assert (c3["fp32"].baseline, c3["fp32"].times.median) == ("ort fp32", 3)
    assert total["fp32"].times.median == pytest.approx((800 + 600) / 300)
    assert total["int8"].times.median == pytest.approx(600 / 300)
    assert found.row("torch fp32", "C2").against == {}
    assert found.layers == ["C2", "C3", SUM]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_checked_before_it_is_timed(form, monkeypatch, skip_isa):
    """With signed weights; a result that is wrong in one bit is refused."""
    usable(machine("avx2", "lookup", 2, 2), skip_isa)
    signed = FORMS[form].replace_weights("signed")
    result, given, call = in_form(SMALL, "avx2", 2, 2, signed, times=2)
    assert (result.layout, result.wgt.encoding, len(given)) == (signed.layout, "signed", 1)
    assert call() == 0
    right = LayerForm.results
    monkeypatch.setattr(LayerForm, "results", lambda *given: right(*given) ^ 1)
    with pytest.raises(Refuted, match=r"T, .*, signed weights: .* gives a wrong result"):
        in_form(SMALL, "avx2", 2, 2, signed)


def test_without_baselines_of_a_kind():
    found = report([c for c in SUBJECTS if c.kind != "int8"])
    assert found.row("A1W1", SUM).against.keys() == {"fp32"}
    assert report([SUBJECTS[-1]]).row("A1W1", "C2").against == {}


def test_tables(capsys):
    layer_times.show(report(left_out={"onnxruntime": "it has no switch"}))
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines == [
        "avx2 codes to int32; 1 thread; medians of 3 samples, CPU time; IQR of the sum",
        "",
        "microseconds C2 C3 sum IQR",
        "torch fp32 80.0 120 200 50.0%",
        "ort fp32 160 60.0 220 50.0%",
        "torch int8 40.0 20.0 60.0 50.0%",
        "A1W1 10.0 20.0 30.0 50.0%",
        "",
        "times faster C2 C3 sum IQR",
        "A1W1 x fp32 8.00 3.00 4.67 0.0%",
        "A1W1 x int8 4.00 1.00 2.00 0.0%",
        "",
        "torch version 2, instructions AVX2",
    ]
    assert err == "warning: avx2: no onnxruntime: it has no switch\n"


def test_times_of_layers_are_written_as_json():
    answer = json.loads(layer_times.as_json([report()], layer_times.basis(["avx2"], [(2, 1)])))
    assert answer["setting"].keys() >= {"processor", "command"}
    (only,) = answer["reports"]
    assert only["about"]["torch"]["instructions"] == "AVX2"
    (row,) = (r for r in only["rows"] if (r["contender"], r["layer"]) == ("A1W1", "C3"))
    assert row["nanoseconds"] == {"median": 20_000, "low": 20_000, "high": 30_000, "samples": 3}
    assert row["against"]["fp32"]["peer"] == "ort fp32"


def test_csv():
    lines = list(csv.DictReader(io.StringIO(layer_times.as_csv([report()]).decode())))
    assert len(lines) == len(SUBJECTS) * 3
    assert lines[0]["fp32_peer"] == lines[0]["times_int8"] == ""
    last = lines[-1]
    assert (last["contender"], last["layer"], last["median_ns"]) == ("A1W1", SUM, "30000.0")
    assert (last["fp32_peer"], float(last["times_int8"])) == ("the fastest of each layer", 2)


@pytest.mark.parametrize("subjects", quick([SUBJECTS], of=[SUBJECTS, SUBJECTS[-1:]]), ids=["baselines", "alone"])
def test_plots(tmp_path, subjects):
    from bitsynth.bench.plots import layers

    layers.draw([report(subjects), report()], tmp_path / "layers")
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "layers.svg").read_text()
    assert "<svg" in drawn
    layers.draw([report(subjects), report()], tmp_path / "again")
    assert (tmp_path / "again.svg").read_text() == drawn


def test_a_plot_shows_five_series_at_most_and_says_what_to_see(tmp_path):
    from bitsynth.bench.plots import layers

    names = ["A1W1", "A1W1 signed", "A1W2", "A2W1", "A2W1 signed", "A2W2", "A2W2 ternary"]
    subjects = [*SUBJECTS[:3], *(LocalSubject(name, "bitsynth", {}, 1) for name in names)]
    times = np.array([[[t, t, 2 * t] for t in TIMES.get(c.name, TIMES["A1W1"])] for c in subjects], float)
    layers.draw([LayersReport("avx2", 1, rows(subjects, ["C2", "C3"], times))], tmp_path / "many")
    drawn = re.findall(r"<!-- (.*) -->", (tmp_path / "many.svg").read_text())
    assert [text for text in drawn if text in names] == ["A1W1", "A1W2", "A2W1", "A2W2", "A2W2 ternary"]
    message = " ".join(drawn)
    assert "Higher is better, below 1 the baseline is faster; 4.7 to 4.7 times fp32 over all layers" in message
    assert "Not shown: A1W1 signed, A2W1 signed." in message
