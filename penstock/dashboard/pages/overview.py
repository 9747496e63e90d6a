"""The first page: charts of finished work, queues, processes, and findings of the doctor."""

from __future__ import annotations

from dataclasses import replace

from penstock.dashboard.views import Page, View
from penstock.database.transaction import Transaction
from penstock.operate import overview as queries
from penstock.operate.pages.charts import Chart, Period, chart, top_tasks

COUNT_LIMIT = 10_000
TOP_TASKS = 10


def overview(view: View) -> Page:
    """Charts of an hour, a day or a week; queues in numbers, counted up to a limit; findings of the doctor."""
    given = view.text("period")
    period = Period(given) if given in list(Period) else Period.HOUR

    def read(tx: Transaction) -> dict[str, object]:
        queues = queries.queue_counts(tx, COUNT_LIMIT)
        processes = queries.live_processes(tx, view.app.settings.reap_after)
        drawn = chart(tx, period, queue=view.text("queue"), memory=view.charts)
        lags = [row.lag or 0.0 for row in queues if view.text("queue") in (None, row.queue)]
        drawn.points[-1] = replace(drawn.points[-1], lag=max([drawn.points[-1].lag, *lags]))
        return {
            "period": period,
            "periods": list(Period),
            "queue": view.text("queue"),
            "chart": drawn,
            "sums": _sums(drawn),
            "queues": queues,
            "processes": processes,
            "workers": queries.workers_among(processes),
            "count_limit": COUNT_LIMIT,
            "tasks": top_tasks(tx, period, TOP_TASKS, view.charts),
        }

    data = view.read(read)
    return Page("overview.html", "Overview", data | {"troubles": view.troubles()})


def _sums(drawn: Chart) -> dict[str, object]:
    """The sums of the whole period."""
    points = drawn.points
    attempts = sum(point.succeeded + point.errors + point.other for point in points)
    run = sum(point.run_seconds for point in points)
    recent = points[-6:-1]
    done = sum(point.succeeded + point.errors for point in recent)
    if not done:  # work has only just begun: the current point says more than those before it
        recent = points[-1:]
        done = sum(point.succeeded + point.errors for point in recent)
    return {
        "succeeded": sum(point.succeeded for point in points),
        "errors": sum(point.errors for point in points),
        "failed": sum(point.failed for point in points),
        "mean_seconds": run / attempts if attempts else None,
        "per_second": done / (len(recent) * drawn.seconds),
        "longest_lag": max(point.lag for point in points),
    }
