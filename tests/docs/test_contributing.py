"""CONTRIBUTING.md, the Makefile, workflows and issue forms name what there is; the YAML is as GitHub reads it."""

import re
import shutil
import subprocess
import tomllib

import pytest
from support.markdown_blocks import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
FILES = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CONTRIBUTING.md"]


def loaded(path):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_alone_lists_every_target():
    command = ["make", "--no-print-directory", "help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[0] for line in done.stdout.splitlines()} == TARGETS
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == TARGETS


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_targets_and_scripts_exist(path):
    text = path.read_text(encoding="utf-8")
    called = re.findall(r"(?:^|`|run: )make ([a-z][a-z ]*)", text, re.MULTILINE)
    assert {name for names in called for name in names.split()} <= TARGETS
    for script in re.findall(r"\.ci/\w+", text):
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_the_package_names_the_pythons_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert project["requires-python"] == f">={named[0]}"
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"python: \[(.*)\]", text)
    assert re.findall(r'"(.*?)"', matrix) == named


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").iterdir()), ids=lambda p: p.name)
def test_workflows_call_what_exists(path):
    workflow = loaded(path)
    assert workflow[True]  # YAML's `on`
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"] <= 90
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        assert set([job["needs"]] if "needs" in job else []) <= set(workflow["jobs"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bug", "operator", "wrong_code"])
def test_issue_forms_are_valid(name):
    form = loaded(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert form["name"]
    assert form["description"]
    asked = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in asked} <= {"textarea", "input", "dropdown"}
    assert len({field["id"] for field in asked}) == len(asked)
    assert all(field["attributes"]["label"] for field in asked)
    assert any(field.get("validations", {}).get("required") for field in asked)


@pytest.mark.slow
def test_hooks_before_a_commit():
    hooks = {hook["id"]: hook for repo in loaded(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]}
    assert {"ruff", "ruff-format", "codespell", "lint-imports", "mypy"} <= set(hooks)
    assert hooks["mypy"]["stages"] == ["pre-push"]
