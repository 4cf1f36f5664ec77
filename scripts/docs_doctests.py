"""Shows the sessions of docstrings (``>>> ``) as code: an extension of Griffe, see mkdocs.yml."""

from __future__ import annotations

import re
from typing import Any, Final

from griffe import Extension, Object

#: from a prompt to an empty line
_SESSION: Final = re.compile(r"^>>> .*?(?=\n[ \t]*\n|\Z)", re.MULTILINE | re.DOTALL)


class Doctests(Extension):
    """Puts a fence around each session; Markdown would take it for a quotation of quotations."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of what was read."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = _SESSION.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
