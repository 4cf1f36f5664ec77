"""HDFS for pyiceberg, as for the rest of a job; pyiceberg's own way needs Hadoop's ``libhdfs``.

pyiceberg imports it by its name, when a table is on HDFS.
"""

from __future__ import annotations

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from holdfast.filesystem import configured
from holdfast.filesystem.hdfs import connect_hdfs


class HdfsFiles(PyArrowFileIO):
    """Reads and writes the files of tables on HDFS, with the job's settings."""

    def _initialize_hdfs_fs(self, scheme: str, netloc: str | None) -> FileSystem:
        return connect_hdfs(f"{scheme}://{netloc or ''}", configured(), makes_parents=True)
