"""Packages a user would run instead: fp32 and int8 convolutions of each, in a process of its own."""
