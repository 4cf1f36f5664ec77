"""Delivers what a program ships to the workers: files, archives, packages, the interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext

from holdfast.datastream.shipment import Shipment
from holdfast.errors import JobDefinitionError


def deliver_shipment(context: SparkContext, shipment: Shipment, directory: Path) -> list[str]:
    """Give everything to Spark; returns the paths that the workers import from in addition.

    Raises:
        JobDefinitionError: when a file is missing or packages cannot be installed.
    """
    if shipment.python_executable is not None:
        context.pythonExec = shipment.python_executable
    for file in shipment.python_files:
        context.addPyFile(_existing(file, "add_python_file"))
    for archive, target in shipment.archives:
        context.addArchive(f"{_existing(archive, 'add_python_archive')}#{target}")
    for name, file in shipment.cached_files.items():
        context.addFile(_under_name(_existing(file, "register_cached_file"), name, directory))
    return _install(context, shipment, directory)


def _existing(path: str, method: str) -> str:
    if "://" not in path and not Path(path).exists():
        raise JobDefinitionError(f"{method}: there is no file {path}")
    return path


def _under_name(file: str, name: str, directory: Path) -> str:
    """Spark keeps a file's own name; give it the wanted one."""
    folder = directory / "files"
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.copy(file, os.fspath(folder / name))


def _install(context: SparkContext, shipment: Shipment, directory: Path) -> list[str]:
    """Install required packages beside the job; a cluster gets them as a zip file."""
    if shipment.requirements is None:
        return []
    requirements, packages = shipment.requirements
    target = directory / "packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
    command += ["--requirement", _existing(requirements, "set_python_requirements")]
    command += ["--no-index", "--find-links", packages] if packages else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobDefinitionError(
            f"set_python_requirements: pip could not install {requirements}: {done.stderr.strip()}"
        )
    if not (context.master or "").startswith("local"):
        context.addPyFile(shutil.make_archive(str(directory / "packages"), "zip", target))
    return [os.fspath(target)]
