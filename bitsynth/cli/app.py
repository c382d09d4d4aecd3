"""The tree of commands."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup

from bitsynth.cli.commands import (
    bench,
    check,
    compile,
    doctor,
    emit_glue,
    emit_layer,
    explore,
    export,
    inspect,
    isa,
    listing,
    show,
    synth,
    tune,
    verify,
)
from bitsynth.cli.options.output import Version
from bitsynth.cli.register import command

_EPILOG = (
    "Exit codes: 0 done; 1 no such kernel exists, or one was refuted; 2 bad input, usage or cache file; "
    "3 undecided: the solver's budget is spent; 4 a compiler, an emulator or the file system failed; "
    "130 interrupted, 143 terminated, 129 hung up."
    "\n\nBITSYNTH_CACHE is the folder of your own kernels, BITSYNTH_BUILD_CACHE that of compiled code."
)


class Passing(Exception):
    """An exception on its way past typer, which would print and exit in its own way."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, OSError) as error:
            raise Passing(error) from None


app = typer.Typer(
    cls=_Group, add_completion=False, pretty_exceptions_enable=False, invoke_without_command=True, epilog=_EPILOG
)


@app.callback()
def start(
    ctx: typer.Context,
    version: Version = False,
) -> None:
    """Synthesize, prove and emit 1- to 8-bit kernels and layers for NEON, AVX2 and AVX-512."""
    if version:
        import bitsynth

        typer.echo(f"bitsynth {bitsynth.__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


command(app, "synth")(synth.synth)
command(app, "verify")(verify.verify)
command(app, "show")(show.show)
command(app, "list")(listing.list_kernels)
command(app, "emit-layer")(emit_layer.emit_layer)
command(app, "emit-glue")(emit_glue.emit_glue)
command(app, "compile")(compile.compile_network)
command(app, "inspect")(inspect.inspect)
command(app, "check")(check.check)
command(app, "export")(export.export)
command(app, "explore")(explore.explore)
app.add_typer(isa.app, name="isa")
app.add_typer(bench.app, name="bench")
command(app, "tune")(tune.tune)
command(app, "doctor")(doctor.doctor)


@cache
def group() -> Any:
    """What parses arguments and runs the commands, made once."""
    return typer.main.get_command(app)
