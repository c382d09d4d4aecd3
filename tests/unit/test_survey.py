"""Which method wins where: plans, baselines, the map, its JSON and its plots."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bitsynth.cli import main, output
from bitsynth.cli.reports import winners
from bitsynth.errors import SpecError
from bitsynth.spec.options import METHODS
from bitsynth.synth import planner, survey, synthesize
from bitsynth.synth.planner import PlannedKernel
from bitsynth.synth.survey import Cell, Map, PeakBaseline

SMALL = ["--isa", "avx2", "--act-bits", "1-2", "--w-bits", "1", "--jobs", "1"]


def plan(method, cycles, why="", bits=(1, 1)):
    return PlannedKernel(bits[0], bits[1], method, cycles, "4x8x64" if cycles else "", why, 0.5)


def baseline(peak):
    return PeakBaseline("int8", "by hand", peak, "a test")


def made(*cells, int8=None, fp32=None):
    return Map("neon", "a72", int8, fp32, cells)


def test_the_cheapest_kernel_wins_unless_int8_is_faster():
    cell = Cell(1, 1, (plan("lookup", 4.0), plan("popcount", 5.0), plan("dot", None, "lacks")))
    assert cell.best.method == "lookup"
    assert made(cell).winner(cell) == ("lookup", 4.0)
    assert made(cell, int8=baseline(16)).winner(cell) == ("lookup", 4.0)
    assert made(cell, int8=baseline(32)).winner(cell) == ("lookup", 4.0)
    assert made(cell, int8=baseline(64)).winner(cell) == ("int8", 2.0)
    assert cell.times(baseline(64)) == pytest.approx(0.5)


def test_a_cell_without_kernels():
    cell = Cell(8, 4, (plan("dot", None, "lacks"),))
    assert cell.best is None
    assert cell.times(baseline(8)) is None
    assert made(cell).winner(cell) is None
    assert winners.winner(made(cell), cell) == "-"
    assert made(cell, int8=baseline(8)).winner(cell) == ("int8", 16.0)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_win(method, capsys, tmp_path):
    width_map = made(Cell(1, 1, (plan(method, 4.0),)))
    winners.show(width_map)
    assert f"{method} 4.00" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    from bitsynth.bench.plots.survey import draw

    draw([width_map], tmp_path / "map")
    assert (tmp_path / "map.svg").exists()


def test_what_a_scoreboard_predicts_is_behind_a_slash():
    cell = Cell(1, 1, (replace(plan("lookup", 4.0), scoreboard=4.58),))
    assert winners.winner(made(cell), cell) == "lookup 4.00 / 4.58"
    assert "After a slash: cycles that a scoreboard model predicts for a72" in " ".join(winners.legend(made(cell)))
    assert winners.winner(made(cell, int8=baseline(64)), cell) == "int8 2.00 *"


@pytest.mark.parametrize(("isa", "cpu"), [("neon", "a53"), ("avx2", "zen5")])
def test_a_plan_has_the_scoreboard_of_processors_with_issue_rules(isa, cpu):
    found = planner.plan((isa, cpu, 1, 1, "popcount"))
    assert (found.scoreboard is not None) == (isa == "neon")
    assert found.scoreboard is None or found.scoreboard > found.cycles


def test_an_unknown_peak_has_no_ratio():
    cell = Cell(1, 1, (plan("lookup", 4.0),))
    assert winners.ratios(made(cell, fp32=baseline(4)), cell) == "- 8.00x"
    assert "no peak is known" in " ".join(winners.legend(made(cell)))


def test_baselines_are_the_fastest_of_the_processor():
    found = survey.survey("neon", "a76", [1], [1], workers=1, methods=("dot",))
    assert (found.int8.name, found.int8.peak, found.fp32.peak) == ("int8_sdot", 32, 8)
    assert survey.survey("neon", "a53", [1], [1], workers=1, methods=("dot",)).int8.name == "int8"


def test_the_map_marks_where_int8_is_faster(capsys):
    cells = Cell(1, 1, (plan("lookup", 4.0),)), Cell(2, 1, (plan("lookup", 10.0, bits=(2, 1)),))
    winners.show(made(*cells, int8=baseline(16), fp32=baseline(4)))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:6] == [
        "neon on a72",
        "",
        "W1",
        "bits winner, cycles x int8, x fp32",
        "A1 lookup 4.00 2.00x 8.00x",
        "A2 int8 8.00 * 0.80x 3.20x",
    ]
    assert "* int8 is faster than every kernel here." in "\n".join(lines)
    assert not any("*" in line for line in winners.legend(made(cells[0], int8=baseline(16), fp32=baseline(4))))
    assert lines[-1].endswith("not proved; `bitsynth synth` proves them.")


def test_the_map_fits_a_terminal(capsys, monkeypatch):
    """Its cells have a line each where that fits, else up to three."""
    kernels = [replace(plan("multiply", 14.0, bits=(a, w)), scoreboard=18.5) for a in (1, 2) for w in range(1, 5)]
    plans = [Cell(k.act_bits, k.w_bits, (k,)) for k in kernels]
    for columns, lines in ((200, 1), (110, 2), (80, 3)):
        monkeypatch.setattr(output, "width", lambda columns=columns: columns)
        winners.show(made(*plans, int8=baseline(4), fp32=baseline(4)))
        table = capsys.readouterr().out.split("\n\n")[1].splitlines()
        assert max(map(len, table)) <= columns
        assert len(table) == {1: 4, 2: 7, 3: 9}[lines]


@pytest.mark.slow
def test_small_map(capsys, tmp_path):
    argv = [*SMALL, "--json", str(tmp_path / "map.json"), "--plot", str(tmp_path / "map")]
    assert main(["explore", *argv]) == 0
    assert capsys.readouterr().out.startswith("avx2 on zen5\n")
    (only,) = json.loads((tmp_path / "map.json").read_text())["maps"]
    assert [(c["act_bits"], c["w_bits"]) for c in only["cells"]] == [(1, 1), (2, 1)]
    for cell in only["cells"]:
        costs = [k["cycles"] for k in cell["kernels"]]
        assert costs == sorted(costs)
        assert {k["method"] for k in cell["kernels"]} | cell["without_kernel"].keys() == {*METHODS} - {"fip", "matrix"}
        assert cell["winner"] == cell["kernels"][0]["method"]
        assert cell["times_int8"] == pytest.approx(2.0 / costs[0], abs=1e-3)
    for suffix in ("png", "svg"):
        assert (tmp_path / f"map.{suffix}").stat().st_size > 1000


def test_no_kernel_by_any_method_is_a_cell():
    found = survey.survey("avx2", "", [1], [1], workers=1, methods=("dot",))
    (cell,) = found.cells
    assert cell.plans[0].why == "avx2 has no instruction for the dot method"


def test_a_method_that_takes_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(planner, "LIMIT", 0.05)
    monkeypatch.setattr(synthesize, "candidates", lambda *args: time.sleep(20))
    start = time.perf_counter()
    (cell,) = survey.survey("neon", "", [1], [1], workers=1, methods=("lookup",)).cells
    assert cell.plans[0].why == "not planned within 0.05 s"
    assert time.perf_counter() - start < 10


@pytest.mark.slow
def test_workers_find_the_same():
    alone, together = (survey.survey("avx2", "", [1, 2], [1], workers=n) for n in (1, 2))
    assert [[(p.method, p.cycles, p.tile, p.why) for p in c.plans] for c in alone.cells] == [
        [(p.method, p.cycles, p.tile, p.why) for p in c.plans] for c in together.cells
    ]


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--isa", "sparc"], 2, "unknown instruction set 'sparc'"),
        (["--isa", "neon", "--cpu", "zen5"], 2, "neon knows a53, a72, a76; instruction sets of zen5: avx2, avx512"),
        (["--isa", "neon", "--act-bits", "0-3"], 2, "--act-bits: want bits from 1 to 8, such as 1-4 or 1,2, not '0-3'"),
        (["--isa", "neon", "--act-bits", "4-2"], 2, "--act-bits: want bits from 1 to 8"),
        (["--isa", "neon", "--w-bits", "1,"], 2, "--w-bits: want bits from 1 to 8"),
        (["--isa", "neon", "--w-bits", "12"], 2, "--w-bits: want bits from 1 to 8"),
        (["--isa", "neon", "--jobs", "0"], 2, "'--jobs'"),
        ([], 2, "missing option '--isa'"),
        (["--isa", "neon", "--json", "/proc/none/map.json"], 4, "cannot write to /proc/none"),
    ],
)
def test_bad_arguments(capsys, argv, code, message):
    assert main(["explore", *argv]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_unknown_bits():
    with pytest.raises(SpecError):
        survey.survey("neon", "", [9], [1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
def test_workers_end_with_who_asks():
    """Killed, not interrupted, in the middle of what they plan."""
    command = [
        sys.executable,
        "-c",
        "from bitsynth.synth.survey import survey; survey('neon', '', [6, 7], [3, 4], methods=['popcount'], workers=2)",
    ]
    with subprocess.Popen(command) as process:
        while len(found := Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()) < 2:
            time.sleep(0.05)
        time.sleep(3)
        process.kill()
    end = time.monotonic() + 10
    while (left := [pid for pid in found if Path(f"/proc/{pid}").exists()]) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == []


def _planned(method, cycles, scoreboard):
    return PlannedKernel(4, 4, method, cycles, "", "", 0.0, scoreboard)


@pytest.mark.parametrize(
    ("fip", "lookup", "first"),
    [
        ((8.0, 9.2), (9.0, 9.8), "fip"),
        ((8.0, 9.2), (9.0, 9.6), "lookup"),
        ((8.0, None), (9.0, None), "fip"),
        ((9.1, 8.0), (9.0, 9.8), "lookup"),
    ],
)
def test_what_is_first_is_what_synthesis_takes(fip, lookup, first):
    """Of products of sums only what is predicted to be quicker by 5 %."""
    (cell,) = survey._cells([_planned("lookup", *lookup), _planned("fip", *fip)], by_scoreboard=False)
    assert cell.best.method == first


def test_methods_of_in_order_processors_are_compared_by_predicted_cycles():
    plans = [_planned("lookup", 12.8, 22.0), _planned("multiply", 16.1, 20.5)]
    found = [survey._cells(plans, by_scoreboard)[0].best.method for by_scoreboard in (False, True)]
    assert found == ["lookup", "multiply"]


@pytest.mark.slow
def test_in_order_processors_have_no_products_of_sums():
    found = {cpu: survey.survey("neon", cpu, [1], [1], methods=["fip"], workers=1) for cpu in ("a53", "a72")}
    assert {cpu: _methods_of(each) for cpu, each in found.items()} == {"a53": set(), "a72": {"fip"}}


def _methods_of(found):
    return {plan.method for cell in found.cells for plan in cell.plans}
