"""Every benchmark runs with small settings and prints JSON; what it measures is not judged."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.case_selection import quick

import bitsynth
from bitsynth.host import features

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SETTING = {"machine", "processor", "python", "bitsynth", "z3-solver", "numpy", "commit", "command"}
HAS_FMA = {"avx2", "fma"} <= features.features()


def run(script, *args):
    command = [sys.executable, str(BENCHMARKS / script), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def printed(script, *args):
    done = run(script, "--json", *args)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert set(answer["setting"]) >= SETTING
    assert answer["setting"]["command"].startswith(f"python benchmarks/{script} --json")
    return answer


def test_paper_8x8():
    answer = printed("paper_8x8.py")
    assert answer["counts"]
    for count in answer["counts"]:
        assert count["executed"] == len(count["listing"]) - 1 <= answer["target"]
        assert count["listing"][-1] == "ret"


@pytest.mark.slow
def test_figures_are_written(tmp_path):
    answer = printed("figures.py", "--only", "A1W1", "--runs", 1, "--md", "--results", tmp_path)
    assert [row["config"] for row in answer["synthesis"]] == ["neon A1W1", "avx2 A1W1"]
    assert all(row["is_cached"] for row in answer["synthesis"])
    assert {row["what"]: row["value"] for row in answer["figures"]}["start-ups that import Z3"] == 0
    assert json.loads((tmp_path / "figures.json").read_text())["figures"] == answer["figures"]
    assert "| neon A1W1 |" in (tmp_path / "figures.md").read_text()
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figures.svg").read_text()


@pytest.mark.slow
def test_table2():
    rows = printed("table2.py", "--only", "A1W1")["rows"]
    assert [row["config"] for row in rows] == ["A1W1"]


@pytest.mark.slow
def test_instructions_of_arm_layers_are_counted(tmp_path):
    answer = printed("arm_layers.py", "--layers", "C12", "--results", tmp_path)
    assert {(r["config"], r["layer"]) for r in answer["rows"]} == {
        (config, layer) for config in ("A1W1", "A2W1", "A2W2") for layer in ("C12", "sum")
    }
    for row in answer["rows"]:
        assert row["bitsynth"]["instructions"] <= 0.5 * row["paper"]["instructions"]
        assert row["packing"]["instructions"] < row["bitsynth"]["instructions"] < row["kept"]["instructions"]
        # Pairs read more, but ask for it ahead: counted all the same.
        assert row["bitsynth"]["l1_misses"] <= (0.5 if row["config"] == "A1W1" else 0.9) * row["paper"]["l1_misses"]
        assert row["floor"] <= row["bitsynth"]["l2_misses"] <= row["bitsynth"]["l1_misses"]
    assert "| A2W2 C12 |" in (tmp_path / "arm_layers.md").read_text()
    assert json.loads((tmp_path / "arm_layers.json").read_text())["rows"] == answer["rows"]
    assert (tmp_path / "arm_layers.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "script", quick(["explore.py"], of=["arm_cycles.py", "arm_layer_cycles.py", "arm_predictions.py", "explore.py"])
)
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(script, tmp_path):
    path = tmp_path / "file"
    path.touch()
    done = run(script, "--results", path)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"{script}: cannot write to {path}: {path} is not a folder; choose another folder\n"


def test_an_interrupt_of_a_benchmark_is_one_line():
    report = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import report, signal"
    code = f"{report}; report.run(lambda: signal.raise_signal(signal.SIGINT))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.slow
@pytest.mark.toolchains
def test_predictions_are_what_compilers_write(tmp_path):
    answer = printed("arm_predictions.py", "--only", "A1W1", "--cpu", "a72", "--results", tmp_path)
    assert {row["method"] for row in answer["rows"]} == {"popcount", "lookup", "multiply", "pairs"}
    assert [row for row in answer["rows"] if not 0.9 < row["ratio"] < 1.1] == []
    assert answer["misranked"]["predicted"] < 0.02
    assert "ranked wrongly" in (tmp_path / "arm_predictions.md").read_text()
    assert (tmp_path / "arm_predictions.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.toolchains
def test_cycles_of_arm_kernels_are_predicted(tmp_path):
    wanted = ["--only", "A1W1", "--cpu", "a72", "--compiler", "gcc", "--methods", "popcount"]
    answer = printed("arm_cycles.py", *wanted, "--results", tmp_path)
    assert [(r["cpu"], r["widths"], r["compiler"]) for r in answer["rows"]][-2:] == [
        ("a72", "fp32", "gcc"),
        ("a72", "int8", "gcc"),
    ]
    for row in answer["rows"]:
        assert row["scoreboard"] >= row["model"]
        assert row["predicted"] is None or abs(row["predicted"] / row["scoreboard"] - 1) < 0.1
    assert "| Cortex-A72 |" in (tmp_path / "arm_cycles.md").read_text()
    assert (tmp_path / "arm_cycles.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "arm_cycles.svg").read_text()


@pytest.mark.slow
@pytest.mark.toolchains
def test_arm_layer_cycles(tmp_path):
    answer = printed("arm_layer_cycles.py", "--cpu", "a53", "--only", "A1W1", "--layers", "C11", "--results", tmp_path)
    layer, whole = answer["rows"]
    assert (layer["config"], layer["layer"], whole["layer"]) == ("A1W1", "C11", "sum")
    assert layer["packing"] < layer["cycles"] < layer["int8"] < layer["fp32"]
    assert layer["instructions"] <= 2 * layer["cycles"]
    assert layer["paper"] == pytest.approx(0.58e-3 * 1.2e9 * 4)
    assert "| a53 A1W1 C11 |" in (tmp_path / "arm_layer_cycles.md").read_text()
    assert (tmp_path / "arm_layer_cycles.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_instructions_of_arm_epilogues_are_counted():
    answer = printed("arm_epilogues.py", "--isa", "neon_dotprod", "--only", "A3W3", "--layers", "C11")
    layer, whole = answer["rows"]
    assert (layer["config"], layer["layer"], whole["layer"]) == ("A3W3", "C11", "sum")
    assert layer["sums"] < layer["packed"] <= 1.15 * layer["sums"]


@pytest.mark.slow
def test_a_layer_that_does_not_exist():
    done = run("arm_layers.py", "--layers", "C1")
    assert done.returncode == 2
    assert "--layers: unknown 'C1'; known: C2, C3" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not HAS_FMA, reason="this processor lacks AVX2 or FMA")
def test_steps_of_a_schedule_are_measured(tmp_path):
    rows = printed("schedule_steps.py", "--only", "A2W1", "--rounds", 1, "--results", tmp_path)["rows"]
    assert [row["step"] for row in rows][::5] == ["paper's form", "+ 2 threads"]
    assert rows[0]["times"]["median"] == 1
    assert "<svg" in (tmp_path / "schedule_steps.svg").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_FMA, reason="this processor lacks AVX2 or FMA")
def test_schedules_of_layers_are_measured(tmp_path):
    answer = printed("layer_schedules.py", "--only", "A2W1", "--rounds", 1, "--results", tmp_path)
    assert [row["layer"] for row in answer["rows"]][::11] == ["C2", "sum"]
    *layers, total = ([us["median"] for us in row["microseconds"].values()] for row in answer["rows"])
    assert total == pytest.approx([sum(us) for us in zip(*layers, strict=True)])
    assert total[3] < total[1]
    assert len(answer["figures"]) == 4
    assert "| A2W1 sum |" in (tmp_path / "layer_schedules_avx2.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_FMA, reason="this processor lacks AVX2 or FMA")
def test_epilogues_are_measured(tmp_path):
    options = "--only", "A1W1", "--layers", "C12", "--rounds", 1, "--results", tmp_path
    rows = printed("epilogues.py", *options)["rows"]
    forms = list(dict.fromkeys(row["form"] for row in rows))
    assert forms[0] == "codes to int32"
    assert [row["layer"] for row in rows] == ["C12", "sum"] * len(forms)
    assert rows[0]["times"]["median"] == 1
    assert "| A1W1 packed to packed, thresholds |" in (tmp_path / "epilogues_avx2.md").read_text()
    assert "<svg" in (tmp_path / "epilogues_avx2.svg").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_FMA, reason="this processor lacks AVX2 or FMA")
def test_depthwise_layers_are_measured(tmp_path):
    pytest.importorskip("onnxruntime")
    rows = printed("depthwise.py", "--layers", "960x7", "--rounds", 1, "--results", tmp_path)["rows"]
    assert [row["form"] for row in rows][:2] == ["codes to int32", "codes to bytes, Requantize"]
    assert "| 960x7 packed to packed, thresholds |" in (tmp_path / "depthwise_avx2.md").read_text()
    assert "<svg" in (tmp_path / "depthwise_avx2.svg").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_FMA, reason="this processor lacks AVX2 or FMA")
def test_a_grid_of_widths_is_measured(tmp_path):
    (row,) = printed("width_grid.py", "--only", "A1W1", "--rounds", 1, "--results", tmp_path)["rows"]
    assert min(row["microseconds"]["median"], row["synthesis_seconds"], row["scheduling_seconds"]) > 0
    assert "| A1W1 |" in (tmp_path / "width_grid.md").read_text()


@pytest.mark.skipif(not HAS_FMA, reason="this processor lacks AVX2 or FMA")
def test_instruction_costs_are_measured():
    done = run("instruction_costs.py", "--rounds", 1, "and.u8x32")
    assert done.returncode == 0, done.stderr
    assert any(line.startswith("and.u8x32 ") for line in done.stdout.splitlines())


def test_widths_that_do_not_exist():
    done = run("figures.py", "--only", "A9W1")
    assert done.returncode == 2
    assert "'A9W1' is none of A1W1 to A8W8" in done.stderr


def test_a_result_that_does_not_exist():
    done = run("remeasure.py", "nothing")
    assert done.returncode == 2
    assert done.stderr.startswith("remeasure.py: unknown result 'nothing'; known: resnet18_avx2, ")


def test_a_package_that_is_missing(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('no', name='matplotlib')\n")
    results = tmp_path / "results"
    command = [sys.executable, str(BENCHMARKS / "figures.py"), "--md", "--results", str(results)]
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 4
    assert not results.exists()
    assert "package matplotlib is not installed: pip install 'bitsynth[bench,emulator]'" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not HAS_FMA, reason="this processor lacks AVX2 or FMA")
def test_glue_is_measured():
    rows = printed("glue.py", "--isa", "avx2", "--rounds", 1)["rows"]
    assert len(rows) == 26
    assert all(row["microseconds"] > 0 and row["times_numpy"] > 0 for row in rows)


@pytest.mark.slow
def test_compile_times_are_measured():
    pytest.importorskip("onnx")
    (row,) = printed("compile_time.py", "--only", "chain", "--isa", "neon a53", "--widths", "A1W2", "--runs", 1)["rows"]
    assert (row["network"], row["target"], row["seconds_with_compiler"]) == ("chain", "neon a53", 0)
    assert row["cpu_seconds"] > 0
    wrong = run("compile_time.py", "--only", "vgg")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "compile_time.py: --only: unknown 'vgg'; known: resnet18, chain\n"


@pytest.mark.slow
def test_networks_are_measured_by_width(tmp_path, skip_lesser):
    pytest.importorskip("onnxruntime")
    if importlib.util.find_spec("openvino") is None:
        pytest.skip("peers not installed: openvino")
    skip_lesser("avx2")
    small = "--only", "small_vgg", "--size", 8, "--rounds", 1
    answer = printed("networks_by_width.py", "--isa", "avx2", *small, "--widths", "A2W1", "A4W4", "--results", tmp_path)
    assert [row["width"] for row in answer["rows"]] == ["A2W1", "A4W4", "int8 file"]
    for row in answer["rows"]:
        assert row["ratios"].keys() == {"openvino, float32", "openvino, int8"}
        assert min(row["microseconds"], *row["ratios"].values()) > 0
    assert answer["setting"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert "## small VGG" in (tmp_path / "networks_by_width_avx2.md").read_text()
    assert (tmp_path / "networks_by_width_avx2.png").read_bytes().startswith(b"\x89PNG")
    wrong = run("networks_by_width.py", "--only", "vgg")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("networks_by_width.py: --only: unknown 'vgg'; known: resnet18, ")


@pytest.mark.slow
def test_mobilenets_are_written(tmp_path):
    """A network in floats and one of 8 bits, whose products are all layers."""
    pytest.importorskip("onnxruntime")
    done = run("mobilenets.py", tmp_path, "--only", "mobilenet_v2", "--size", 32)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mobilenet_v2_fp32.onnx", "mobilenet_v2_int8.onnx"]
    net = bitsynth.compile(tmp_path / "mobilenet_v2_int8.onnx")
    assert sum(step.kind == "layer" for step in net.report().steps) == 53
    wrong = run("mobilenets.py", tmp_path, "--only", "vgg")
    assert wrong.returncode == 2
    assert "unknown 'vgg'; known: mobilenet_v1, mobilenet_v2, resnet18" in wrong.stderr
