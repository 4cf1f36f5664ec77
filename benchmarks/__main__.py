"""Starts the command of `benchmarks.cli`."""

import sys

from benchmarks.cli import main

sys.exit(main())
