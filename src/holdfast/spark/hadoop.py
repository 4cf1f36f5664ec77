"""The settings of Hadoop's file systems that Spark runs with."""

from __future__ import annotations

from xml.etree import ElementTree

from pyspark import SparkContext

from holdfast.filesystem import hadoop_options

#: Hadoop's defaults
_DEFAULTS = ("core-default.xml", "hdfs-default.xml")


def hadoop_settings(context: SparkContext) -> dict[str, str]:
    """Return the settings of Hadoop's files, Spark's configuration and the program."""
    jvm = context._jvm
    assert jvm is not None
    # NB: otherwise Hadoop reads hdfs-site.xml, which has name services, with the first file of HDFS
    jvm.org.apache.hadoop.hdfs.HdfsConfiguration.init()
    # NB: one text instead of hundreds of calls, one for each setting
    text = jvm.java.io.StringWriter()
    context._jsc.hadoopConfiguration().writeXml(text)
    found = {}
    for entry in ElementTree.fromstring(text.toString()).iter("property"):
        name, value = entry.findtext("name"), entry.findtext("value")
        if name and value and entry.findtext("source") not in _DEFAULTS:
            found[name] = value
    return hadoop_options(found | dict(context.getConf().getAll()))
