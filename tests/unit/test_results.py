"""Published results say what they were measured with, and are marked where kernels were solved anew since."""

import importlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

from bitsynth import paths
from bitsynth.bench import setting
from bitsynth.errors import BitsynthWarning
from bitsynth.host import features
from bitsynth.isa import load
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.store import files
from bitsynth.store.files import folders
from bitsynth.store.matmul import MATMUL

ROOT = Path(__file__).resolve().parents[2]
HERE = next((name for name in load.names() if features.matches(load.load(name).table)), None)
PLACE = "neon/bs_mm_a1u_w1b_s32_neon_12x8x64"


@pytest.fixture
def module(monkeypatch):
    """`module(name)`: one of the benchmarks."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


@pytest.fixture
def published(module):
    return module("published")


def test_every_file_belongs_to_a_result_that_can_be_measured(published):
    stems = {p.stem for p in published.FOLDER.iterdir()} - {Path(published.INDEX).stem}
    assert stems <= set(published.COMMANDS)
    assert stems == {r.stem for r in published.results()}


def test_no_result_is_missing_or_older_than_its_kernels(published):
    """Else `python benchmarks/remeasure.py --stale`."""
    found = {result.stem: result for result in published.results()}
    assert set(published.COMMANDS) == set(found)
    assert [stem for stem, result in found.items() if not result.facts["kernels"]] == []
    assert {stem: result.stale for stem, result in found.items() if result.stale} == {}


def test_every_result_says_where_it_is_from(published):
    for result in published.results():
        output = result.setting
        assert re.fullmatch("[0-9a-f]{12}", output["commit"]), f"{result.stem}: {output['commit']}"
        assert output["processor"]
        assert any(name.startswith("compiler") for name in output)
        assert output["command"] == published.COMMANDS[result.stem]
        page = published.FOLDER / f"{result.stem}.md"
        assert not page.exists() or f"- commit: {output['commit']}\n" in page.read_text()


def test_what_is_generated_is_up_to_date(published, module):
    """Else `python benchmarks/remeasure.py --publish`."""
    assert (published.FOLDER / published.INDEX).read_text() == published.index()
    tables = module("tables")
    for page in tables.PAGES:
        assert page.read_text() == tables.filled(page.read_text())
    assert sum(page.read_text().count("<!-- table: ") for page in tables.PAGES) == len(tables.TABLES)


def test_pages_of_networks_say_what_to_see(published, module):
    """The sentence below the picture has the page's figures."""
    networks, by_width, quantizers = (module(name) for name in ("networks", "networks_by_width", "quantizers"))
    to_see = {
        "networks": (networks.Row, module("networks_plot").to_see),
        "quantizers": (quantizers.Row, quantizers.to_see),
        **{f"networks_by_width_{isa}": (by_width.Row, by_width.to_see) for isa in published.X86},
    }
    for result in published.results(to_see, published.OF_NETWORKS):
        row, sentence = to_see[result.stem]
        text = sentence([row(**facts) for facts in result.facts["rows"]])
        assert text.startswith("What to see: ")
        assert f"\n\n{text}\n\n" in (published.OF_NETWORKS / f"{result.stem}.md").read_text(encoding="utf-8")


def test_maps_have_the_shipped_kernels_of_each_processor(published):
    """What was solved for it, at 1 to 4 bits, has the cycles of the map."""
    found = [m for r in published.results() if r.stem.startswith("explore_") for m in r.facts["maps"]]
    assert found
    for known, cell in ((m, c) for m in found for c in m["cells"] if c["act_bits"] < 5):
        spec = MatmulSpec.plain(known["isa"], cell["act_bits"], cell["w_bits"])
        if path := MATMUL.find(spec, KernelOptions(model=known["cpu"]).variant):
            entry = MATMUL.read(path)
            planned = {plan["method"]: plan["cycles"] for plan in cell["kernels"]}
            assert entry.cost.cycles[known["cpu"]] == pytest.approx(planned[entry.method], abs=1e-3), path


@pytest.fixture
def results(published, tmp_path, monkeypatch):
    """A folder with the result of emulated layers, as it is published but for the kernels."""
    monkeypatch.setattr(published, "FOLDER", tmp_path)

    def write(kernels):
        found = {"commit": "0123456789ab", "processor": "A53", "command": "measure", "compiler (neon)": "cc 1"}
        counts = {form: {"instructions": n, "l1_misses": n} for form, n in (("paper", 8), ("bitsynth", 2))}
        rows = [{"config": c, "layer": x, **counts} for c in ("A1W1", "A2W1", "A2W2") for x in ("C2", "sum")]
        text = json.dumps({"setting": found, "kernels": kernels, "rows": rows})
        (tmp_path / "arm_layers.json").write_text(text)

    return write


def test_a_result_is_stale_when_a_kernel_was_solved_anew(published, module, results):
    digests = setting.digests(["neon"], {(1, 1)}, layers=False)
    assert PLACE in digests
    table = module("tables").table
    results(digests)
    assert f"| A53 | 0123456789ab | cc 1 | {len(digests)} | `measure` |" in published.index()
    assert table("emulated").endswith("`arm_layers`: A53, cc 1, 0123456789ab.")
    results({**digests, PLACE: "0" * 32, "neon/gone": "1" * 32})
    assert published.results()[0].stale == [PLACE, "neon/gone"]
    message = f"**stale**: 2 of {len(digests) + 1} solved anew since"
    assert f"| {message} |" in published.index()
    assert table("emulated").endswith(f"; arm_layers is {message}.")
    results({})
    assert "| none |" in published.index()


def test_a_table_of_results_that_are_not_there(module, results):
    assert module("tables").table("emulated") == "Not measured: `arm_layers`."


def test_pairs_that_predictions_rank_wrongly(module):
    """Of one width on one processor; what is predicted alike is ranked neither way."""
    result = module("arm_predictions")

    def row(predicted, compiled, cpu="a53", w_bits=1):
        return result.Row(cpu, "k", 1, w_bits, "popcount", 8, predicted, compiled + 1, compiled)

    found = [row(4, 6), row(5, 5), row(5, 4), row(6, 7), row(3, 9, "a72"), row(3, 9, w_bits=2)]
    pairs = result.misranked(found)
    assert [(a.predicted, b.compiled) for a, b in pairs] == [(4, 5), (4, 4)]
    assert result.apart(pairs) == pytest.approx({"pairs": 2, "predicted": 0.25, "compiled": 0.5})
    assert result.ranked(result.apart(pairs)).startswith(
        "2 pairs of kernels of one width are ranked wrongly, at most 25.0%"
    )
    assert result.apart([]) == {"pairs": 0, "predicted": 0, "compiled": 0}


def test_digests_are_of_some_kernels():
    every = setting.digests(["neon"])
    layers = setting.digests(["neon"], layers=True)
    assert set(layers) == {place for place in every if re.search(r"-c\d+(-k\d+)?/", place)}
    assert {**layers, **setting.digests(["neon"], layers=False)} == every
    some = setting.digests(["neon"], {(2, 1)})
    assert some == {place: digest for place, digest in every.items() if "_a2u_w1b_" in place}
    assert 0 < len(some) < len(every)


def test_what_cannot_be_read_is_left_out_of_digests_with_a_warning(tmp_path, monkeypatch):
    """Long work is not lost to a broken or misnamed file in the user's cache."""
    shipped = setting.digests(["neon"], {(1, 1)})
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    for name in (f"{PLACE}.json", "neon/bs_mm_odd.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{")
    with pytest.warns(BitsynthWarning) as caught:
        found = setting.digests(["neon"], {(1, 1)})
    assert found == {place: digest for place, digest in shipped.items() if place != PLACE}
    assert [str(w.message).partition(" ")[0] for w in caught] == ["left", "left"]
    assert all(any(name in str(w.message) for w in caught) for name in (f"{PLACE}.json", "bs_mm_odd"))


@pytest.mark.parametrize("git", ["", "echo 'fatal: detected dubious ownership' >&2; exit 128"])
def test_a_commit_is_unknown_without_a_git_that_tells(monkeypatch, tmp_path, git):
    monkeypatch.setattr(paths, "shipped_kernels", lambda: tmp_path / "kernels_cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".git").touch()
    if git:
        (tmp_path / "git").write_text(f"#!/bin/sh\n{git}\n")
        (tmp_path / "git").chmod(0o755)
    assert setting.commit() == "unknown"


def test_what_figures_rest_on_is_as_it_was_before_they_were_measured(monkeypatch):
    monkeypatch.setattr(setting, "commit", lambda: "changed since")
    facts = setting.facts(setting.Basis({PLACE: "0" * 32}, "before"), rows=[1])
    assert facts.keys() == {"setting", "kernels", "rows"}
    assert facts["setting"]["commit"] == "before"
    assert facts["kernels"] == {PLACE: "0" * 32}


def test_a_place_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    for folder in folders():
        assert files.place(folder / f"{PLACE}.json") == (folder, Path(PLACE))


def test_a_setting_names_the_compiler_that_compiles(monkeypatch):
    """Not the first one there is."""
    if HERE is None:
        pytest.skip("code needs a processor with a shipped instruction set; this one lacks it")
    from bitsynth.toolchain.compiler import compilers

    for compiler in compilers(load.load(HERE)):
        monkeypatch.setenv("BITSYNTH_CC", " ".join(compiler.command))
        facts = setting.setting(isas=[HERE])
        assert facts[f"compiler ({HERE})"] == compiler.version
        assert facts["command"].startswith(("BITSYNTH_CC=", "'BITSYNTH_CC="))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these policies")
def test_a_setting_says_how_it_goes_before_others(monkeypatch):
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_OTHER)
    monkeypatch.setattr(os, "nice", lambda more: 5)
    assert "scheduling" not in setting.setting()
    monkeypatch.setattr(os, "nice", lambda more: -5)
    assert setting.setting()["scheduling"] == "niceness -5"
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_FIFO)
    monkeypatch.setattr(os, "sched_getparam", lambda pid: os.sched_param(7))
    assert setting.setting()["scheduling"] == "real-time, priority 7"


def test_a_commit_is_marked_where_files_changed(monkeypatch, tmp_path):
    fields = {"status": "", "rev-parse": "0123456789ab"}
    monkeypatch.setattr(setting, "_git", lambda folder, command, *words: fields[command])
    monkeypatch.setattr(paths, "shipped_kernels", lambda: tmp_path / "kernels_cache")
    assert setting.commit() == "unknown"
    (tmp_path / ".git").touch()
    assert setting.commit() == "0123456789ab"
    fields["status"] = " M bitsynth/spec/matmul.py"
    assert setting.commit() == "0123456789ab+changes"


def test_no_kernel_is_solved_for_options_that_do_not_exist(module, monkeypatch):
    shipped = module("shipped_kernels")
    monkeypatch.setattr(shipped, "store_depthwise", lambda: pytest.fail("kernels are solved"))
    for option, code in (("--help", 0), ("--rechek", 2)):
        monkeypatch.setattr(sys, "argv", ["shipped_kernels.py", option])
        with pytest.raises(SystemExit) as ended:
            shipped.main()
        assert ended.value.code == code
