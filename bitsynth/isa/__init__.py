"""Instruction sets as data, and the one evaluator that gives them meaning."""
