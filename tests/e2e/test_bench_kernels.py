"""`bitsynth bench kernels` on one kernel or two; what it measures is not judged."""

import json
import shutil

import pytest

from bitsynth import paths
from bitsynth.bench import loops
from bitsynth.cli import main
from bitsynth.host import features
from bitsynth.store.matmul import MATMUL

pytestmark = pytest.mark.slow
TIMED = pytest.mark.skipif(not {"avx2", "fma"} <= features.features(), reason="this processor lacks AVX2 or FMA")
BITS = ["--act-bits", "1,2", "--w-bits", "1"]


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    MATMUL.forget()
    return tmp_path / "cache"


def bench(tmp_path, *argv, code=0):
    file, stem = tmp_path / "out" / "bench.json", tmp_path / "out" / "bench"
    assert main(["bench", "kernels", *argv, "--json", str(file), "--plot", str(stem)]) == code
    assert (tmp_path / "out" / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "out" / "bench.svg").read_text()
    (only,) = json.loads(file.read_text())["sets"]
    for kernel in only["kernels"]:
        assert kernel["ratios"].keys() == {b["name"] for b in only["baselines"]}
        assert kernel["operand_bytes"] <= loops.L1_SHARE * loops.l1_bytes()
        # Whole steps, of up to 128 positions.
        assert 0 < kernel["k"] < 576 + 128
    return only


@TIMED
def test_kernels_are_timed(tmp_path, capsys):
    answer = bench(tmp_path, "--isa", "avx2", *BITS, "--repeats", "3")
    assert (answer["isa"], answer["unit"]) == ("avx2", "cycles")
    assert len(answer["kernels"]) >= 2
    assert {"fp32", "int8"} <= {b["name"] for b in answer["baselines"]}
    assert answer["rank_correlation"].keys() == {"zen5", "skylake", "zen4"}
    assert all(r["gmac_per_second"]["samples"] == 3 for r in answer["kernels"] + answer["baselines"])
    assert "A2W1" in capsys.readouterr().out


@TIMED
def test_a_broken_file_is_named_and_the_others_measured(tmp_path, user, capsys):
    shipped = next((paths.shipped_kernels() / "avx2").glob("bs_mm_a1u_w1b_*.json"))
    (user / "avx2").mkdir(parents=True)
    shutil.copy(shipped, user / "avx2" / "bs_mm_a1u_w1b_s32_avx2_9x8x32.json")
    answer = bench(tmp_path, "--isa", "avx2", "--act-bits", "1", "--w-bits", "1", "--repeats", "1", code=2)
    assert len(answer["problems"]) == 1
    assert answer["kernels"]
    err = capsys.readouterr().err
    assert "9x8x32.json: the certificate does not check" in err
    assert "error: left out 1 kernel" in err


def test_instructions_of_emulated_kernels_are_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(features, "arch", lambda: "x86_64")
    answer = bench(tmp_path, "--isa", "neon", *BITS)
    assert (answer["isa"], answer["unit"], answer["clock_ghz"]) == ("neon", "instructions", None)
    assert {"fp32", "int8", "int8_sdot"} == {b["name"] for b in answer["baselines"]}
    for r in answer["kernels"] + answer["baselines"]:
        assert r["gmac_per_second"] is None
        executed = r["per_128_mac"]["median"] * r["macs"] / 128
        assert executed == pytest.approx(round(executed))
    assert "GMAC" not in capsys.readouterr().out
