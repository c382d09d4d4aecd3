"""`python -m bitsynth.cli` is the command `bitsynth`."""

import sys

from bitsynth.cli import main

sys.exit(main())
