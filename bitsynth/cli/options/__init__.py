"""Typer options of the commands, a file for each group."""
