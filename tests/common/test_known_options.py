import ast
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast.datastream
from holdfast.common import Configuration
from holdfast.common.options.setting import DECLARED_KEYS
from holdfast.common.unknown_keys import is_known, warn_unknown_keys

ROOT = Path(holdfast.__file__).parent
FIRST_WORDS = {key.split(".")[0] for key in DECLARED_KEYS}
KEY = re.compile(r"[a-z][a-z-]*(\.[a-z][a-z-]*)+")
#: texts that only look like keys: a file, a property of a sink, and those of commits to tables
OTHERS = {
    *("holdfast.zip", "holdfast.commits.topic", "holdfast.transaction", "holdfast.compaction"),
    *("holdfast.job-name", "holdfast.job-id", "holdfast.checkpoint-id", "holdfast.sink"),
}


def texts_of(module):
    """All texts in the code of a module but its docstrings."""
    tree = ast.parse(module.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def texts():
    modules = [module for module in ROOT.rglob("*.py") if module.name != "known_options.py"]
    return {text for module in modules for text in texts_of(module)}


def is_a_module(text):
    path = ROOT.parent.joinpath(*text.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_every_key_in_the_code_is_known():
    keys = {text for text in texts() if KEY.fullmatch(text) and text.split(".")[0] in FIRST_WORDS}
    assert {key for key in keys if not is_a_module(key)} - DECLARED_KEYS == OTHERS


def test_all_settings_are_declared_once_a_program_can_make_an_environment():
    program = (
        "import holdfast.datastream, holdfast.common.options.setting as s; print(*s.DECLARED_KEYS)"
    )
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert set(found.stdout.split()) == DECLARED_KEYS


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("execution.checkpointing.intervall", "; did you mean 'execution.checkpointing.interval'?"),
        ("execution.checkpoint.mode", "; did you mean 'execution.checkpointing.mode'?"),
        ("state.backend.typ", "; did you mean 'state.backend.type'?"),
        ("pipeline.operator-chaining", "; did you mean 'pipeline.operator-chaining.enabled'?"),
        ("holdfast.dir", "; did you mean 'holdfast.directory'?"),
        ("jobmanager.rpc.port", ""),
    ],
)
def test_an_unknown_key_is_a_warning_that_names_the_nearest(caplog, key, hint):
    with caplog.at_level(logging.WARNING):
        warn_unknown_keys(Configuration({key: "1", "pipeline.name": "job"}))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"configuration key '{key}' is not known and has no effect{hint}")
    ]


def test_one_warning_for_each_unknown_key(caplog):
    with caplog.at_level(logging.WARNING):
        warn_unknown_keys(Configuration({"b.key": 1, "a.key": 2}))
    assert [record.getMessage().split("'")[1] for record in caplog.records] == ["a.key", "b.key"]


def test_known_keys_and_those_of_spark_are_no_warning(caplog):
    configuration = Configuration(dict.fromkeys([*DECLARED_KEYS, "spark.any.thing"], "1"))
    with caplog.at_level(logging.WARNING):
        warn_unknown_keys(configuration)
    assert caplog.records == []


def test_what_is_known():
    assert is_known("restart-strategy.type")
    assert is_known("spark.sql.shuffle.partitions")
    assert not is_known("sparkle")
