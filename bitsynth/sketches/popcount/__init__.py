"""Counting bits: gates on one bit position, blocks of planes, and what counts them."""
