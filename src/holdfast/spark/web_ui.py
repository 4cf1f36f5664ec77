"""Shows Holdfast's pages below Spark's web UI, and so at the proxies of YARN and Spark's master.

Spark's web UI is a Jetty server, and Spark has Jetty's own proxy servlet. It forwards what it gets
below ``/holdfast`` to a server of this process. The filters and access control lists of Spark's web
UI apply first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from holdfast.errors import HoldfastError
from holdfast.printable import get_logger

_PATH: Final = "/holdfast"
#: Jetty's servlet, in the packages of Spark 4.2 and 4.1
_SERVLETS: Final = (
    "org.sparkproject.jetty.ee10.proxy.ProxyServlet$Transparent",
    "org.sparkproject.jetty.proxy.ProxyServlet$Transparent",
)
#: followers of a job get answers without end
_NO_LIMIT: Final = "0"

_logger = get_logger(__name__)
#: held while the path is in use
_in_use = threading.Lock()


def show_in_spark(session: SparkSession, url: str) -> Callable[[], None] | None:
    """Show a server of this process below Spark's web UI; return a function that ends that.

    Return None, and log why, if that is not possible.
    """
    try:
        return _show(session.sparkContext, url)
    except Exception as error:  # of Spark's bridge, too; the job can do without
        _logger.warning("jobs are not shown below Spark's web UI ('rest.spark-ui'): %s", error)
        return None


def _show(context: SparkContext, url: str) -> Callable[[], None]:
    if context.uiWebUrl is None:
        raise HoldfastError("it is turned off; set 'spark.ui.enabled' to true")
    if not _in_use.acquire(blocking=False):
        raise HoldfastError("another job of this program with other settings 'rest.*' is there")
    with ExitStack() as if_it_fails:
        if_it_fails.callback(_in_use.release)
        ui = context._jsc.sc().ui().get()
        handler = _handler(context, url)
        ui.attachHandler(handler)
        if_it_fails.pop_all()
    _logger.info("jobs are shown below Spark's web UI, too: %s%s/", context.uiWebUrl, _PATH)

    def end() -> None:
        with suppress(Exception):  # the session may have ended
            ui.detachHandler(handler)
        _in_use.release()

    return end


def _handler(context: SparkContext, url: str) -> Any:
    gateway: Any = context._gateway
    utils = gateway.jvm.org.apache.spark.ui.JettyUtils
    handler = utils.createServletHandler(_PATH, _servlet(gateway.jvm), "")
    (holder,) = handler.getServletHandler().getServlets()
    holder.setInitParameter("proxyTo", url)
    holder.setInitParameter("timeout", _NO_LIMIT)
    return handler


def _servlet(jvm: Any) -> Any:
    *others, last = _SERVLETS
    for name in others:
        with suppress(Exception):  # there is no class of that name
            return jvm.java.lang.Class.forName(name).newInstance()
    return jvm.java.lang.Class.forName(last).newInstance()
