"""Makes the modules that a program sends to its workers importable in its own process."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.datastream.shipment import Shipment
from holdfast.errors import JobDefinitionError
from holdfast.printable import get_logger

_logger = get_logger(__name__)


def make_importable(shipment: Shipment) -> None:
    """Add the files of a program to the import path of this process.

    Raises:
        JobDefinitionError: if a file is missing, or functions need Spark to find it.
    """
    if shipment.archives or shipment.cached_files:
        method = "add_python_archive" if shipment.archives else "register_cached_file"
        raise JobDefinitionError(
            f"{method}: functions find such a file with pyspark.SparkFiles, and the local engine "
            "runs without Spark; open the file by its own path, or run the job without --local"
        )
    if shipment.requirements is not None:
        _logger.warning(
            "the local engine does not install the packages of %s: functions run in this process; "
            "install them with pip",
            shipment.requirements[0],
        )
    for file in shipment.python_files:
        place = str(_import_path(Path(file)))
        if place not in sys.path:
            sys.path.append(place)


def _import_path(file: Path) -> Path:
    """Return where a module, a package, a directory of modules or a zip file is imported from."""
    if not file.exists():
        raise JobDefinitionError(f"add_python_file: there is no file {file}")
    if file.is_dir():
        return file.resolve().parent if (file / "__init__.py").exists() else file.resolve()
    return file.resolve().parent if file.suffix == ".py" else file.resolve()
