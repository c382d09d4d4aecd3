"""Counting of bits: gates on one bit position, blocks of planes, and the instructions that count them."""
