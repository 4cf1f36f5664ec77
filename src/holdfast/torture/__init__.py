"""``holdfast torture``: proves that a job recovers from faults.

The program runs undisturbed, and again while faults strike it. Then the contents of its sinks are
compared. `faults` has the kinds of faults and draws a plan of them from a seed, `trial` runs the
program, `comparing` compares. The program runs in a process of its own, in the `environment` that
keeps its outputs apart from those of other runs.

A program that writes elsewhere than to the sinks of ``holdfast.datastream.connectors`` puts its
output below ``run_directory()``, and what it writes there is compared as well.
"""

from holdfast.torture.order import run_directory

__all__ = ["run_directory"]
