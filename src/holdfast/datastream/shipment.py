"""Files and packages that a program sends to the workers besides its functions."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Shipment"]


@dataclass
class Shipment:
    """Files, archives and packages for the workers; the Spark side delivers them.

    Attributes:
        python_files: modules, packages or zip files to import from.
        archives: archives and the directory that each is unpacked to.
        cached_files: files by their name on the workers.
        requirements: a requirements file, and a directory of packages to install from, if any.
        python_executable: the workers' interpreter; None for the driver's.
    """

    python_files: list[str] = field(default_factory=list)
    archives: list[tuple[str, str]] = field(default_factory=list)
    cached_files: dict[str, str] = field(default_factory=dict)
    requirements: tuple[str, str | None] | None = None
    python_executable: str | None = None
