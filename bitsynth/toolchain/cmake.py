"""Builds emitted libraries by cmake, as their users do."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.processes import tool
from bitsynth.toolchain.compiler import Compiler

_COMMANDS = "compile_commands.json"


@dataclass(frozen=True)
class BuiltLibrary:
    """A static library that cmake built, and by the name of a C file the flags that it was compiled with."""

    path: Path
    flags: Mapping[str, list[str]]


def build_library(source: Path, name: str, folder: Path, compiler: Compiler) -> BuiltLibrary:
    """Build the library `name` of the folder `source` in `folder`; ToolError if that fails, or cmake is missing."""
    if shutil.which("cmake") is None:
        raise ToolError("cmake is not installed: install it, or build the library and give it with --object FILE")
    options = [f"-DCMAKE_C_COMPILER={';'.join(compiler.command)}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    if compiler.arch != features.arch():  # Programs are not linked: an architecture's compiler may lack its libc.
        options += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={compiler.arch}"]
        options.append("-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY")
    start = ["cmake", "-S", str(source.resolve()), "-B", str(folder), *options]
    build = ["cmake", "--build", str(folder), "--target", name, "--parallel", str(features.cores())]
    environment = {"TMPDIR": str(folder), **compiler.environment}  # A compiler that is ended leaves files there.
    for command in (start, build):
        tool.run(command, folder, environment)
    path = folder / f"lib{name}.a"
    if not path.is_file():
        raise ToolError(f"{shlex.join(build)} ended with exit code 0 but made no {path.name}")
    entries = json.loads((folder / _COMMANDS).read_text(encoding="utf-8"))
    return BuiltLibrary(path, {Path(each["file"]).name: _flags(each, len(compiler.command)) for each in entries})


def _flags(entry: Mapping[str, str], words: int) -> list[str]:
    """Return the flags of a command that compiles a file, without paths; the compiler takes `words` of it."""
    arguments = shlex.split(entry["command"])[words:]
    named = {k + 1 for k, x in enumerate(arguments) if x in {"-o", "-c", "-MF", "-MT"}}
    return [x for k, x in enumerate(arguments) if k not in named and x not in {"-o", "-c"} and "/" not in x]
