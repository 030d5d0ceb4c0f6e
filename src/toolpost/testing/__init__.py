"""For the tests of your own tools, extensions and backends.

``check_tool`` tries everything a caller may do to a tool; ``check_extension``, ``check_backend``
and ``check_store`` hold a part against what its socket asks for. Each gives a ``Report`` whose
items passed, failed or did not apply, with the reason::

    report = await check_tool(my_tool, arguments={"city": "Oslo"})
    report.raise_if_failed()

Above: test suites. Below: the executor, used as anybody would.
"""

from toolpost.testing.report import Report, Tried
from toolpost.testing.samples import Clock, echo, fail, hang, sample_executor, sample_runtime
from toolpost.testing.sockets import check_backend, check_extension
from toolpost.testing.store import check_store
from toolpost.testing.tool import check_tool

__all__ = [
    "Clock",
    "Report",
    "Tried",
    "check_backend",
    "check_extension",
    "check_store",
    "check_tool",
    "echo",
    "fail",
    "hang",
    "sample_executor",
    "sample_runtime",
]
