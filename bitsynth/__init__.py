"""bitsynth: proven low-bit matrix-multiply microkernels, synthesized."""
