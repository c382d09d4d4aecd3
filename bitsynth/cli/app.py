"""The tree of commands: names, groups and summaries. The module of a command is imported when the command is used."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from bitsynth.cli.options.output import Version

_EPILOG = (
    "Exit codes: 0 done; 1 no such kernel exists, or one was refuted; 2 bad input, usage or cache file; "
    "3 undecided: the solver's budget is spent; 4 a compiler, an emulator or the file system failed; "
    "130 interrupted, 143 terminated, 129 hung up."
    "\n\nBITSYNTH_CACHE is the folder of your own kernels; BITSYNTH_BUILD_CACHE is the folder of compiled code."
)


@dataclass(frozen=True)
class CommandEntry:
    """A command in the tree.

    `function` is MODULE:FUNCTION in `bitsynth.cli.commands`; a group has `commands` instead. `summary` is the first
    paragraph of the function's docstring, here so that `--help` imports no command. `panel` is its heading in `--help`.
    """

    name: str
    summary: str
    function: str = ""
    commands: tuple[CommandEntry, ...] = ()
    panel: str | None = None


_BENCH = (
    CommandEntry("network", "Measure a network, each of its steps, and other runtimes.", "bench_network:network"),
    CommandEntry(
        "resnet18", "Measure the convolutions of ResNet-18, and fp32 and int8 of other packages.", "bench:resnet18"
    ),
    CommandEntry("kernels", "Measure every cached kernel, and hand-written fp32 and int8 loops.", "bench:kernels"),
)
_ISA = (
    CommandEntry("list", "List the instruction sets.", "isa:list_sets"),
    CommandEntry("show", "Show the instructions of a set, or where a mnemonic is declared.", "isa:show"),
    CommandEntry("check", "Compare every declared instruction with the processor's own.", "isa:check"),
)
COMMANDS = (
    CommandEntry("inspect", "Show a quantized network node by node.", "inspect:inspect", panel="Networks"),
    CommandEntry("compile", "Write a quantized network as a C library.", "compile:compile_network", panel="Networks"),
    CommandEntry("quantize", "Quantize a float network for a processor.", "quantize:quantize", panel="Networks"),
    CommandEntry(
        "check", "Compare a compiled network with its reference and other runtimes.", "check:check", panel="Networks"
    ),
    CommandEntry("bench", "Measure networks, layers and kernels.", commands=_BENCH, panel="Networks"),
    CommandEntry(
        "verify", "Check the certificate of a network or of a kernel again.", "verify:verify", panel="Networks"
    ),
    CommandEntry("export", "Write a quantized network in standard ONNX operators.", "export:export", panel="Networks"),
    CommandEntry("synth", "Find and prove the cheapest kernel for two bit-widths.", "synth:synth", panel="Kernels"),
    CommandEntry("list", "List the cached kernels: yours and the shipped ones.", "list:list_kernels", panel="Kernels"),
    CommandEntry("show", "Show a cached kernel: its program and cost, or its C.", "show:show", panel="Kernels"),
    CommandEntry("explore", "Map which method wins at which bit-widths.", "explore:explore", panel="Kernels"),
    CommandEntry(
        "emit-layer",
        "Write a convolution or dense layer as a C library.",
        "emit_layer:emit_layer",
        panel="Layers as C",
    ),
    CommandEntry(
        "emit-glue",
        "Write a pooling, elementwise or resizing layer as a C library.",
        "emit_glue:emit_glue",
        panel="Layers as C",
    ),
    CommandEntry("tune", "Find faster schedules of layers by measuring.", "tune:tune", panel="Layers as C"),
    CommandEntry(
        "doctor", "Show which tools are found or missing, and what runs here.", "doctor:doctor", panel="Machine"
    ),
    CommandEntry("isa", "List, show and check instruction sets.", commands=_ISA, panel="Machine"),
)


class Passing(Exception):
    """An exception on its way past typer, which would print and exit in its own way."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _FlagOfHelp:
    """Makes False the default of a command's option --help.

    It is None otherwise, which typer converts to bool by pydantic: importing that takes as long as a short command.
    """

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.default = False
        return option


class _Command(_FlagOfHelp, TyperCommand):
    """A command with its options."""


class LazyCommand(TyperCommand):
    """A command that is imported when it runs or its help is asked for; before, only name and summary are known."""

    def __init__(self, entry: CommandEntry) -> None:
        super().__init__(entry.name, help=entry.summary, rich_help_panel=entry.panel)
        self._entry = entry

    @cached_property
    def loaded(self) -> Any:
        """Import the command with its options, or make the group with its commands."""
        entry = self._entry
        if entry.commands:
            return typer.main.get_command(_group_app(entry))
        module, _, name = entry.function.partition(":")
        function = getattr(import_module(f"bitsynth.cli.commands.{module}"), name)
        single = typer.Typer(add_completion=False)
        single.command(entry.name, cls=_Command, help=help_text(function))(function)
        return typer.main.get_command(single)

    @property
    def commands(self) -> dict[str, Any]:
        """Return the commands of a group; none of a command."""
        return getattr(self.loaded, "commands", {})

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse arguments by the command itself, which also runs them."""
        return self.loaded.make_context(*args, **options)


def help_text(function: Callable[..., None]) -> str:
    """Return the docstring with each paragraph on one line: typer keeps line ends of all but the first."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(p.split()) for p in paragraphs)


def _group_class(entries: tuple[CommandEntry, ...]) -> type[TyperGroup]:
    class Group(_FlagOfHelp, TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = {entry.name: LazyCommand(entry) for entry in entries}

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except (KeyboardInterrupt, OSError) as error:
                raise Passing(error) from None

    return Group


def _group_app(entry: CommandEntry) -> typer.Typer:
    """Return the group of an entry; without a command it prints its help."""
    group_app = typer.Typer(
        name=entry.name, cls=_group_class(entry.commands), add_completion=False, invoke_without_command=True
    )

    @group_app.callback(help=entry.summary)
    def start(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    return group_app


app = typer.Typer(
    cls=_group_class(COMMANDS),
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    epilog=_EPILOG,
)


@app.callback()
def start(
    ctx: typer.Context,
    version: Version = False,
) -> None:
    """Compile low-bit networks, ONNX or TensorFlow Lite, to C, with proved kernels for NEON, AVX2 and AVX-512."""
    if version:
        import bitsynth

        typer.echo(f"bitsynth {bitsynth.__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@cache
def group() -> Any:
    """Return the parser of arguments that runs the commands; it is built once."""
    return typer.main.get_command(app)
