"""Delivery of a program's files to the workers: files, archives, packages, the interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from pyspark import SparkContext

from holdfast.datastream.shipment import Shipment
from holdfast.errors import JobDefinitionError


def deliver_shipment(context: SparkContext, shipment: Shipment, directory: Path) -> list[str]:
    """Pass everything to Spark; return additional import paths for the workers.

    Raises:
        JobDefinitionError: if a file is missing or packages cannot be installed.
    """
    if shipment.python_executable is not None:
        context.pythonExec = shipment.python_executable
    paths = []
    for number, file in enumerate(shipment.python_files):
        if Path(_existing(file, "add_python_file")).is_dir():
            paths.append(_send_directory(context, Path(file).resolve(), directory / f"{number}"))
        else:
            context.addPyFile(file)
    for archive, target in shipment.archives:
        context.addArchive(f"{_existing(archive, 'add_python_archive')}#{target}")
    for name, file in shipment.cached_files.items():
        context.addFile(_under_name(_existing(file, "register_cached_file"), name, directory))
    return [*paths, *_install(context, shipment, directory)]


def _existing(path: str, method: str) -> str:
    if "://" not in path and not Path(path).exists():
        raise JobDefinitionError(f"{method}: there is no file {path}")
    return path


def _send_directory(context: SparkContext, source: Path, scratch: Path) -> str:
    """Send a package, or a directory to import from; return its import path on the driver.

    Spark cannot send directories to import from, so a cluster gets a zip file.
    """
    is_package = (source / "__init__.py").exists()
    root = source.parent if is_package else source
    if not on_this_machine(context):
        # NB: workers identify the files of a job by their names
        target = scratch.with_name(f"{source.name}-{scratch.name}.zip")
        context.addPyFile(zip_modules(source, root, target))
    return str(root)


def zip_modules(source: Path, root: Path, target: Path) -> str:
    """Write a zip file that executors can import from; names in it are relative to ``root``."""
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(root))
    return str(target)


def on_this_machine(context: SparkContext) -> bool:
    """Return whether all workers are on the driver's machine."""
    return (context.master or "").startswith("local")


def _under_name(file: str, name: str, directory: Path) -> str:
    """Copy a file under another name, because Spark sends files under their own names."""
    folder = directory / "files"
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.copy(file, os.fspath(folder / name))


def _install(context: SparkContext, shipment: Shipment, directory: Path) -> list[str]:
    """Install required packages in the job's directory; a cluster gets them as a zip file."""
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
    if not on_this_machine(context):
        context.addPyFile(shutil.make_archive(str(directory / "packages"), "zip", target))
    return [os.fspath(target)]
