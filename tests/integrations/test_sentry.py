"""integrations/sentry: Sentry by its own SDK, with a transport that keeps what would be sent."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("sentry_sdk", reason="sentry-sdk is not installed")

import sentry_sdk
from sentry_sdk.transport import Transport

from penstock import Penstock, Retry, current
from penstock.integrations.sentry import monitor_config, report_to_sentry, slug_of
from penstock.runtime.worker import Worker
from penstock.schedules.definition import ScheduleDefinition
from penstock.testing import crash_at, drain, travel
from tests.conformance.embedded import beside_a_worker
from tests.waiting import until


class Kept(Transport):
    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[str, Any]] = []

    def capture_envelope(self, envelope: Any) -> None:
        self.items += [(item.type, item.payload.json) for item in envelope.items]

    def of(self, kind: str) -> list[Any]:
        return [payload for found, payload in self.items if found == kind]


@pytest.fixture
def sent() -> Iterator[Kept]:
    kept = Kept()
    sentry_sdk.init(
        dsn="http://key@localhost/1", transport=kept, traces_sample_rate=1.0, default_integrations=False
    )
    yield kept
    sentry_sdk.init()


def test_errors_spans_and_one_trace(app: Penstock, sent: Kept) -> None:
    report_to_sentry(app, ignore=(KeyError,))

    @app.task(name="charge", queue="money", retries=0)
    def charge(order: int) -> None:
        if order == 1:
            raise ValueError("card declined")
        if order == 2:
            raise KeyError("expected")

    @app.task(name="on_loop")
    async def on_loop() -> None: ...

    with sentry_sdk.start_transaction(op="http.server", name="POST /orders") as request:
        jobs = [charge.enqueue(order) for order in (1, 2, 3)]
        on_loop.enqueue()
    drain(app)
    (error,) = sent.of("event")
    assert error["exception"]["values"][-1]["value"] == "card declined"
    assert error["contexts"]["penstock"] == {
        "job": jobs[0].id,
        "task": "charge",
        "queue": "money",
        "attempt": 1,
    }
    assert error["tags"]["penstock.task"] == "charge"
    whole = sent.of("transaction")
    produced = next(each for each in whole if each["transaction"] == "POST /orders")
    assert [span["op"] for span in produced["spans"]] == ["queue.publish"] * 4
    assert produced["spans"][0]["data"]["messaging.message.id"] == jobs[0].id
    handled = [each for each in whole if each["transaction"] == "charge"]
    assert len(handled) == 3
    for each in handled:
        trace = each["contexts"]["trace"]
        assert (trace["trace_id"], trace["op"]) == (request.trace_id, "queue.process")
        assert trace["data"]["messaging.destination.name"] == "money"
        assert trace["data"]["messaging.message.retry.count"] == 0
        assert trace["data"]["messaging.message.receive.latency"] >= 0
    statuses = sorted(each["contexts"]["trace"]["status"] for each in handled)
    assert statuses == ["internal_error", "internal_error", "ok"]
    assert error["contexts"]["trace"]["trace_id"] == request.trace_id


def test_schedules_are_cron_monitors(app: Penstock, sent: Kept) -> None:
    report_to_sentry(app)

    @app.task(name="report", retries=0)
    def report(good: bool) -> None:
        assert good

    @app.pipeline(name="nightly")
    def nightly() -> Any:
        return report(True)

    report.schedule("*/5 * * * *", tz="Europe/Berlin", name="Good report", args=(True,))
    report.schedule(every=7200, name="bad", args=(False,), missed="latest")
    nightly.schedule("0 * * * *", name="nightly")
    drain(app)
    with travel(app, 7300):
        drain(app)
    told = {(each["monitor_slug"], each["status"]) for each in sent.of("check_in")}
    assert told == {
        ("good-report", "in_progress"),
        ("good-report", "ok"),
        ("bad", "in_progress"),
        ("bad", "error"),
        ("nightly", "in_progress"),
        ("nightly", "ok"),
    }
    configs = {each["monitor_slug"]: each["monitor_config"] for each in sent.of("check_in")}
    assert configs["good-report"] == {
        "schedule": {"type": "crontab", "value": "*/5 * * * *"},
        "timezone": "Europe/Berlin",
    }
    assert configs["bad"]["schedule"] == {"type": "interval", "value": 2, "unit": "hour"}
    by_id: dict[str, list[str]] = {}
    for each in sent.of("check_in"):
        by_id.setdefault(each["check_in_id"], []).append(each["status"])
    assert ["in_progress", "ok"] in by_id.values()


def check_ins(sent: Kept) -> dict[str, list[str]]:
    """The statuses of each check-in, by its monitor."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in sent.of("check_in"):
        found.setdefault((each["monitor_slug"], each["check_in_id"]), []).append(each["status"])
    assert len({slug for slug, _ in found}) == len(found), "one tick of each schedule"
    return {slug: statuses for (slug, _), statuses in found.items()}


def test_a_check_in_ends_once_when_its_retries_are_over(app: Penstock, sent: Kept) -> None:
    report_to_sentry(app)
    tries: list[str] = []

    @app.task(name="late", retries=Retry(max=1, delay=1))
    def late(name: str) -> None:
        tries.append(name)
        if name == "never" or tries.count(name) < 2:
            raise ValueError(name)

    @app.pipeline(name="whole")
    def whole(name: str) -> Any:
        return late(name)

    for name in ("second", "never"):
        app.schedules.create(late, every=3600, name=f"job-{name}", args=(name,))
        app.schedules.create(whole, "0 * * * *", name=f"run-{name}", args=(name,))
    with travel(app, 3600):
        drain(app)
    for schedule in app.schedules():
        schedule.pause()  # the minute that follows may be the first of an hour
    with travel(app, 3660):
        drain(app)
    assert check_ins(sent) == {
        "job-second": ["in_progress", "in_progress", "ok"],
        "job-never": ["in_progress", "in_progress", "error"],
        "run-second": ["in_progress", "ok"],
        "run-never": ["in_progress", "error"],
    }
    ended = [each for each in sent.of("check_in") if each["status"] != "in_progress"]
    assert {each["monitor_slug"]: each["monitor_config"]["schedule"]["type"] for each in ended} == {
        "job-second": "interval",
        "job-never": "interval",
        "run-second": "crontab",
        "run-never": "crontab",
    }


def test_a_timeout_is_an_error_and_ends_its_check_in_as_one(app: Penstock, sent: Kept) -> None:
    report_to_sentry(app)

    @app.task(name="endless", timeout=0.05, retries=0)
    async def endless() -> None:
        await asyncio.sleep(600)

    schedule = endless.schedule("0 0 1 1 *", name="yearly")

    async def main(_: Worker) -> None:
        job = await schedule.trigger_async()
        await until(lambda: job.status == "failed")
        await until(lambda: len(sent.of("check_in")) == 2)
        (error,) = sent.of("event")
        assert error["exception"]["values"][0]["type"] == "TimeoutError"
        assert error["contexts"]["penstock"]["job"] == job.id

    beside_a_worker(app, main)
    assert check_ins(sent) == {"yearly": ["in_progress", "error"]}


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_the_first_check_in_of_a_schedule_that_was_made_elsewhere_describes_it(
    make_app: Callable[..., Penstock], sent: Kept, kind: str
) -> None:
    """Sentry drops a check-in of a monitor that it does not know, and that does not describe it."""
    app, elsewhere = make_app(), make_app()
    report_to_sentry(app)

    def in_thread() -> None: ...

    async def on_loop() -> None: ...

    for each in (app, elsewhere):
        each.task(name="work")(in_thread if kind == "thread" else on_loop)
    elsewhere.schedules.create(elsewhere.tasks["work"], "0 0 1 1 *", name="yearly").trigger()
    drain(app)
    assert check_ins(sent) == {"yearly": ["in_progress", "ok"]}
    described = [each["monitor_config"]["schedule"] for each in sent.of("check_in")]
    assert described == [{"type": "crontab", "value": "0 0 1 1 *"}] * 2


def test_the_end_in_the_jobs_own_transaction_ends_its_check_in(app: Penstock, sent: Kept) -> None:
    report_to_sentry(app)

    @app.task(name="work")
    def work() -> None:
        with current().transaction():
            current().complete()

    app.schedules.create(work, "0 0 1 1 *", name="yearly").trigger()
    drain(app)
    assert check_ins(sent) == {"yearly": ["in_progress", "ok"]}


def test_a_crash_is_an_error_and_ends_the_check_in_when_there_are_no_more(app: Penstock, sent: Kept) -> None:
    report_to_sentry(app)

    @app.task(name="work", max_crashes=1)
    def work() -> None: ...

    schedule = app.schedules.create(work, "0 0 1 1 *", name="yearly")
    job = schedule.trigger()
    for seconds in (0, 600):
        with travel(app, seconds), crash_at("execute.after") as crash:
            drain(app)
        assert crash.crashed
    with travel(app, 1200):
        drain(app)
    assert job.status == "failed"
    crashed = [each["exception"]["values"][0]["type"] for each in sent.of("event")]
    assert crashed == ["Crashed"] * 2
    assert {each["contexts"]["penstock"]["job"] for each in sent.of("event")} == {job.id}
    assert check_ins(sent) == {"yearly": ["in_progress", "in_progress", "error"]}


@pytest.mark.parametrize(
    ("seconds", "expected"), [(60, (1, "minute")), (90, None), (86_400 * 2, (2, "day")), (30, None)]
)
def test_intervals_that_sentry_can_watch(seconds: int, expected: tuple[int, str] | None) -> None:
    found = monitor_config(ScheduleDefinition("x", "task", "t", "{}", "{}", every=seconds * 1_000_000))
    assert (found and (found["schedule"]["value"], found["schedule"]["unit"])) == expected


def test_slugs() -> None:
    assert slug_of("tenant:7 Nightly/EU") == "tenant-7-nightly-eu"
    assert len(slug_of("x" * 200)) == 50
    assert slug_of("???") == "schedule"
