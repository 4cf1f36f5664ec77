import ast
import pathlib

import holdfast.common as common

PYFLINK = [
    "ByteArraySchema",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]
OWN = ["CompletableFuture", "type_info_of"]


def test_exports_are_those_of_pyflink_and_our_own():
    assert common.__all__ == sorted([*PYFLINK, *OWN])


def test_every_export_is_in_the_catalogue():
    for name in common.__all__:
        assert getattr(common, name) is not None
        assert f"- `{name}`:" in common.__doc__


#: what every package may import, and its own modules
ALLOWED = ("holdfast.common", "holdfast.errors", "holdfast.printable", "holdfast.tracebacks")


def test_common_imports_neither_spark_nor_the_rest_of_holdfast():
    for path in pathlib.Path(common.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert not name.startswith(("pyspark", "py4j")), path
                assert not name.startswith("holdfast") or name.startswith(ALLOWED), path
