"""`python -m bitsynth.cli` is the command `bitsynth`."""

from bitsynth.cli import command

command()
