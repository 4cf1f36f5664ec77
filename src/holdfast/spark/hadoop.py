"""The settings of Hadoop's file systems that Spark runs with."""

from __future__ import annotations

from xml.etree import ElementTree

from pyspark import SparkContext

from holdfast.filesystem import hadoop_options

__all__ = ["hadoop_settings"]

#: Hadoop's own values, which nobody has chosen
_DEFAULTS = "core-default.xml"


def hadoop_settings(context: SparkContext) -> dict[str, str]:
    """What somebody has set: in ``core-site.xml``, in Spark's settings, or in the program."""
    jvm = context._jvm
    assert jvm is not None
    # NB: one text instead of a call for each of some hundred settings
    text = jvm.java.io.StringWriter()
    context._jsc.hadoopConfiguration().writeXml(text)
    found = {}
    for entry in ElementTree.fromstring(text.toString()).iter("property"):
        name, value = entry.findtext("name"), entry.findtext("value")
        if name and value and entry.findtext("source") != _DEFAULTS:
            found[name] = value
    return hadoop_options(found | dict(context.getConf().getAll()))
