"""Detection of missing modules and programs on executors, from Spark's error messages."""

from __future__ import annotations

import re
from typing import Final

_MODULE: Final = re.compile(r"^\s*ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_PROGRAM: Final = re.compile(r"Cannot run program \"([^\"\n]+)\".*(?:error=2|No such file)")


def lacking(text: str) -> str | None:
    """Return a message about a missing module or program, with a remedy; None for other errors."""
    module = _MODULE.findall(text)
    if module:
        return (
            f"the executors' Python has no module '{module[-1]}': send packages as an archive "
            "('spark.archives' and 'spark.pyspark.python') or with env.set_python_requirements(), "
            "and modules of your own with env.add_python_file()"
        )
    program = _PROGRAM.search(text)
    if program:
        return (
            f"an executor's host has no Python at '{program[1]}': set 'spark.pyspark.python' to "
            "its path, or to one in an archive of 'spark.archives'"
        )
    return None
