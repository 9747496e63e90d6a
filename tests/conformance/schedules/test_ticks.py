"""schedules/fire, schedules/decide: every tick fires once or has a row that says why not: what each option and
policy does, on every database.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock import Penstock, Retry
from penstock.errors import ConfigurationError, DefinitionError
from penstock.telemetry.metrics import Metrics
from penstock.testing import assert_enqueued, drain, travel

MINUTE, HOUR, DAY = 60, 3600, 86_400


class Noted:
    """An app with a task and a pipeline that note what they were called for."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.calls: list[tuple[str, datetime | None]] = []

        @app.task(name="note")
        def note(word: str = "") -> str:
            self.calls.append((word, penstock.current().scheduled_for))
            return word

        @app.task(name="first")
        async def first(number: int) -> int:
            self.calls.append((f"first {number}", penstock.current().scheduled_for))
            return number

        @app.task(name="second")
        def second(number: int) -> int:
            self.calls.append((f"second {number}", penstock.current().scheduled_for))
            return number

        @app.pipeline(name="both")
        def both(number: int) -> Any:
            return second(first(number))

        self.note, self.both = note, both

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.calls]


@pytest.fixture
def noted(app: Penstock) -> Noted:
    return Noted(app)


def outcomes(schedule: Any) -> list[tuple[str, int]]:
    """What became of its ticks, the oldest first."""
    return [(tick.outcome, tick.count) for tick in reversed(schedule.ticks(limit=1000))]


def test_a_declared_schedule_fires_its_task(noted: Noted) -> None:
    s = noted.note.schedule(every=MINUTE, name="poll", args=("hello",))
    drain(noted.app)
    assert noted.words == []
    (expected,) = s.next(1)
    travel(noted.app, MINUTE)
    drain(noted.app)
    assert noted.calls == [("hello", expected)]
    (tick,) = s.ticks()
    assert (tick.nominal, tick.outcome, tick.job.status) == (expected, "fired", "succeeded")
    assert tick.lateness is not None
    assert 0 <= tick.lateness < 30
    drain(noted.app)
    assert len(noted.calls) == 1


def test_a_pipeline_is_triggered_and_its_steps_know_the_time(noted: Noted) -> None:
    s = noted.both.schedule("@hourly", args=(7,), name="hourly")
    drain(noted.app)
    (expected,) = s.next()
    travel(noted.app, HOUR)
    drain(noted.app)
    assert noted.calls == [("first 7", expected), ("second 7", expected)]
    (tick,) = s.ticks()
    assert tick.run.status == "succeeded"
    assert tick.job is None
    assert_enqueued(noted.app, noted.both, 7, count=1)


def test_outside_of_a_schedule_there_is_no_nominal_time(noted: Noted) -> None:
    noted.note.enqueue("by hand")
    noted.both.trigger(1)
    drain(noted.app)
    assert {nominal for _, nominal in noted.calls} == {None}


def test_created_at_run_time_in_the_callers_transaction(noted: Noted) -> None:
    app = noted.app
    app.prepare()
    for keep in (False, True):
        with app.database.engine.connect() as connection:
            app.schedules.create(
                noted.note, every=MINUTE, name="tenant:7", args=("x",), connection=connection
            )
            if keep:
                connection.commit()
            else:
                connection.rollback()
        assert [s.name for s in app.schedules(prefix="tenant:")] == (["tenant:7"] if keep else [])
    travel(app, MINUTE)
    drain(app)
    assert noted.words == ["x"]


def test_every_option_of_a_job_is_kept(noted: Noted) -> None:
    options: dict[str, Any] = {
        "queue": "mail",
        "priority": 7,
        "retries": Retry(max=9),
        "timeout": 5,
        "max_crashes": 2,
    }
    s = noted.app.schedules.create(
        noted.note, every=MINUTE, kwargs={"word": "w"}, delay=30, key="k", **options
    )
    travel(noted.app, MINUTE)
    drain(noted.app)
    assert noted.words == []
    (tick,) = s.ticks()
    assert tick.job.status == "scheduled"
    (found,) = assert_enqueued(noted.note, word="w", queue="mail", count=1)
    assert found.id == tick.job.id
    travel(noted.app, 31)
    drain(noted.app)
    assert noted.words == ["w"]


def test_jitter_delays_the_job_and_not_the_tick(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="j", jitter=20)
    travel(noted.app, MINUTE)
    drain(noted.app)
    (tick,) = s.ticks()
    travel(noted.app, 21)
    drain(noted.app)
    assert noted.calls == [("", tick.nominal)]


@pytest.mark.parametrize(
    ("missed", "fired"), [("skip", 0), ("latest", 1), ("all", 24)], ids=["skip", "latest", "all"]
)
def test_a_day_without_workers(noted: Noted, missed: Any, fired: int) -> None:
    s = noted.app.schedules.create(noted.note, every=HOUR, name="m", missed=missed)
    travel(noted.app, DAY + 90)
    drain(noted.app)
    assert len(noted.calls) == fired
    assert sum(count for _, count in outcomes(s)) == 24
    assert sum(count for outcome, count in outcomes(s) if outcome == "skipped_missed") == 24 - fired
    times = [nominal for _, nominal in noted.calls]
    assert times == sorted(times, key=lambda each: each or datetime.min.replace(tzinfo=UTC))
    travel(noted.app, HOUR - 88)
    drain(noted.app)
    assert len(noted.calls) == fired + 1


def test_what_was_missed_long_ago_is_not_made_up_for(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=HOUR, name="w", missed="all", window=5 * HOUR)
    other = noted.app.schedules.create(noted.note, every=HOUR, name="l", missed="all", limit=3)
    late = noted.app.schedules.create(noted.note, every=HOUR, name="s", missed="skip", window=2 * HOUR)
    travel(noted.app, DAY + 90)
    drain(noted.app)
    assert [sum(o == "fired" for o, _ in outcomes(each)) for each in (s, other, late)] == [5, 3, 0]
    assert sum(count for _, count in outcomes(s)) == sum(count for _, count in outcomes(other)) == 24
    travel(noted.app, HOUR + 90)
    drain(noted.app)
    assert outcomes(late)[-1] == ("fired", 1)


def test_many_missed_ticks_share_a_row_that_counts_them(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=10, name="c")
    travel(noted.app, DAY + 5)
    drain(noted.app)
    found = outcomes(s)
    assert sum(count for _, count in found) == 8640
    assert len(found) < 150
    assert len(noted.calls) == 1


def test_all_that_was_missed_comes_in_order_and_in_batches(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=60, name="b", missed="all")
    travel(noted.app, 450 * 60 + 31)
    drain(noted.app)
    times = [nominal for _, nominal in noted.calls if nominal is not None]
    assert len(times) == 450
    assert times == sorted(times)
    assert outcomes(s) == [("fired", 1)] * 450


def test_overlap_skip(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="o", overlap="skip", queue="elsewhere")
    for _ in range(3):
        travel(noted.app, MINUTE)
        drain(noted.app, queues="none")
    assert outcomes(s) == [("fired", 1), ("skipped_overlap", 1), ("skipped_overlap", 1)]
    drain(noted.app)
    travel(noted.app, MINUTE)
    drain(noted.app)
    assert outcomes(s)[-1] == ("fired", 1)
    assert len(noted.calls) == 2


def test_overlap_queue(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="o", overlap="queue", queue="elsewhere")
    for _ in range(3):
        travel(noted.app, MINUTE)
        drain(noted.app, queues="none")
    assert outcomes(s) == [("fired", 1), ("waiting", 1), ("skipped_overlap", 1)]
    waiting = s.ticks()[1]
    drain(noted.app)
    assert outcomes(s) == [("fired", 1), ("fired", 1), ("skipped_overlap", 1)]
    assert [nominal for _, nominal in noted.calls][-1] == waiting.nominal


def test_overlap_cancel(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="o", overlap="cancel", queue="elsewhere")
    runs = noted.app.schedules.create(noted.both, every=MINUTE, name="r", overlap="cancel", args=(1,))
    for _ in range(2):
        travel(noted.app, MINUTE)
        drain(noted.app, queues="none")
    assert [tick.job.status for tick in s.ticks()] == ["available", "cancelled"]
    drain(noted.app)
    assert [tick.run.status for tick in runs.ticks()] == ["succeeded", "cancelled"]
    assert noted.words.count("") == 1


def test_overlap_allow(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="o", queue="elsewhere")
    for _ in range(3):
        travel(noted.app, MINUTE)
        drain(noted.app, queues="none")
    assert outcomes(s) == [("fired", 1)] * 3


def test_a_pause_skips_and_counts_what_passes(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="p")
    assert s.pause(why="audit")
    assert not s.pause()
    assert s.paused
    assert s.pause_reason == "audit"
    travel(noted.app, 3 * MINUTE)
    drain(noted.app)
    assert noted.calls == []
    assert outcomes(s) == [("skipped_paused", 1)] * 3
    assert s.resume()
    assert not s.resume()
    assert not s.paused
    assert outcomes(s) == [("skipped_paused", 1)] * 3
    travel(noted.app, MINUTE)
    drain(noted.app)
    assert outcomes(s)[-1] == ("fired", 1)


def test_created_paused_and_between_start_and_end(noted: Noted) -> None:
    noted.app.prepare()
    now = datetime.now(UTC)
    s = noted.app.schedules.create(noted.note, every=HOUR, name="p", paused=True)
    assert s.paused
    begin, end = now + timedelta(hours=2), now + timedelta(hours=4)
    bounded = noted.app.schedules.create(noted.note, every=HOUR, name="b", start=begin, end=end, missed="all")
    assert bounded.next(10) == [begin, begin + timedelta(hours=1), begin + timedelta(hours=2)]
    travel(noted.app, DAY)
    drain(noted.app)
    assert outcomes(bounded) == [("fired", 1)] * 3
    assert bounded.next_at is None


def test_trigger_starts_one_beside_the_ticks(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="t", args=("now",))
    job = s.trigger()
    drain(noted.app)
    assert job.result() == "now"
    assert noted.words == ["now"]
    (tick,) = s.ticks()
    assert tick.triggered
    assert tick.job.id == job.id
    run = noted.app.schedules.create(noted.both, "@daily", name="r", args=(1,)).trigger()
    drain(noted.app)
    assert run.status == "succeeded"


def test_backfill_fires_what_has_not(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, "0 * * * *", name="b")
    end = datetime.now(UTC)
    assert s.backfill(end - timedelta(hours=250), end) == 250
    drain(noted.app)
    assert len(noted.calls) == 250
    assert len({nominal for _, nominal in noted.calls}) == 250
    assert s.backfill(end - timedelta(hours=250), end) == 250
    drain(noted.app)
    assert len(noted.calls) == 250
    assert s.ticks()[0].lateness is None


def test_backfill_turns_what_was_skipped_into_what_fired(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=HOUR, name="b", missed="skip")
    begin = datetime.now(UTC)
    travel(noted.app, 5 * HOUR + 60)
    drain(noted.app)
    assert outcomes(s) == [("skipped_missed", 1)] * 5
    s.backfill(begin, begin + timedelta(hours=6))
    drain(noted.app)
    assert outcomes(s) == [("fired", 1)] * 5
    assert len(noted.calls) == 5


def test_backfill_one_after_the_other(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=HOUR, name="b", queue="elsewhere")
    end = datetime.now(UTC)
    s.backfill(end - timedelta(hours=3), end, overlap="queue")
    for number in range(3):
        drain(noted.app, queues="none")
        assert [tick.job.status for tick in s.ticks()] == ["available", *["succeeded"] * number]
        drain(noted.app, limit=1)
    assert len(noted.calls) == 3


def test_update_holds_from_the_next_tick_on(noted: Noted) -> None:
    s = noted.app.schedules.create(
        noted.note, "0 3 * * *", tz="Europe/Berlin", name="u", args=("a",), priority=3
    )
    s.update(cron="0 4 * * *")
    assert s.cron == "0 4 * * *"
    assert s.next()[0].hour == 4
    assert s.tz == "Europe/Berlin"
    s.update(args=("b",), queue="mail")
    s.update(every=timedelta(minutes=5))
    assert s.every == timedelta(minutes=5)
    assert s.cron is None
    travel(noted.app, 301)
    drain(noted.app)
    assert noted.words == ["b"]
    assert_enqueued(noted.note, "b", queue="mail", count=1)
    with pytest.raises(ConfigurationError, match="keeps its name"):
        s.update(name="other")


def test_an_update_does_not_lose_a_tick_that_is_due(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="u")
    travel(noted.app, MINUTE)
    s.update(every=HOUR)
    drain(noted.app)
    assert outcomes(s) == [("fired", 1)]
    assert len(noted.calls) == 1


def test_delete_ends_it_and_leaves_its_jobs(noted: Noted) -> None:
    s = noted.app.schedules.create(noted.note, every=MINUTE, name="d")
    travel(noted.app, MINUTE)
    drain(noted.app)
    (tick,) = s.ticks()
    assert s.delete()
    assert not s.delete()
    travel(noted.app, DAY)
    drain(noted.app)
    assert len(noted.calls) == 1
    assert tick.job.status == "succeeded"
    with pytest.raises(penstock.errors.PenstockError, match="no schedule"):
        s.ticks()


def test_listing_by_prefix(noted: Noted) -> None:
    for number in range(7):
        noted.app.schedules.create(noted.note, "@daily", name=f"tenant:{number}")
    noted.app.schedules.create(noted.note, "@daily", name="other")
    assert [s.name for s in noted.app.schedules(prefix="tenant:", limit=3)] == [
        f"tenant:{n}" for n in range(3)
    ]
    assert len(noted.app.schedules()) == 8


def test_every_act_is_in_the_trail(noted: Noted) -> None:
    with noted.app.acting(by="ann", why="ticket 12"):
        s = noted.app.schedules.create(noted.note, every=MINUTE, name="a")
        s.pause()
        s.resume()
        s.trigger()
        s.update(every=HOUR)
        s.backfill(datetime.now(UTC) - timedelta(hours=3), datetime.now(UTC))
        trail = noted.app.audit(s)
        s.delete()
    acts = ["create", "pause", "resume", "trigger", "update", "backfill"]
    assert [act.act for act in reversed(trail)] == acts
    assert {(act.by, act.why, act.kind) for act in trail} == {("ann", "ticket 12", "schedule")}
    assert noted.app.audit()[0].act == "delete"


def test_the_same_name_is_the_same_schedule(noted: Noted) -> None:
    noted.app.schedules.create(noted.note, "0 3 * * *", name="same")
    s = noted.app.schedules.create(noted.note, "0 5 * * *", name="same")
    assert [each.cron for each in noted.app.schedules()] == ["0 5 * * *"]
    assert s.next()[0].hour == 5
    assert noted.note.schedule("0 3 * * *").name == "note 0 3 * * *"
    with pytest.raises(DefinitionError, match="two schedules"):
        noted.note.schedule("0 3 * * *", tz="Asia/Tokyo")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cron": "61 * * * *"}, "minute is '61'"),
        ({"cron": "* * * * fun"}, "day of the week"),
        ({"cron": "* * *"}, "five"),
        ({"cron": "@dayly"}, "@daily"),
        ({"cron": "0 0 31 2 *"}, "never fire"),
        ({"cron": "0 3 * * *", "every": 5}, "not both"),
        ({}, "every="),
        ({"every": 0}, "every=0"),
        ({"every": 60, "tz": "Europe/Berlim"}, "Europe/Berlin"),
        ({"every": 60, "missed": "last"}, "latest"),
        ({"every": 60, "overlap": "que"}, "queue"),
        ({"every": 60, "jiter": 5}, "jitter"),
        ({"every": 60, "args": "ab"}, "tuple"),
        ({"every": 60, "args": (1, 2, 3)}, "note"),
        ({"every": 60, "start": datetime(2026, 1, 1)}, "time zone"),
    ],
)
def test_what_is_wrong_is_refused_by_name(noted: Noted, given: dict[str, Any], words: str) -> None:
    for declare in (
        noted.note.schedule,
        lambda *cron, **rest: noted.app.schedules.create(noted.note, *cron, **rest),
    ):
        rest = dict(given)
        cron = [rest.pop("cron")] if "cron" in rest else []
        with pytest.raises(penstock.errors.PenstockError, match=words):
            declare(*cron, **rest)


async def _all(app: Penstock, task: Any) -> list[str]:
    s = await app.schedules.create_async(task, every=MINUTE, name="async")
    await s.pause_async(why="w")
    await s.resume_async()
    job = await s.trigger_async()
    await s.update_async(every=HOUR)
    now = datetime.now(UTC)
    assert await s.backfill_async(now - timedelta(hours=2), now) == 2
    assert len(await s.next_async(3)) == 3
    assert len(await s.ticks_async()) == 1
    names = [each.name for each in await app.schedules.list_async()]
    assert (await app.schedule_async("async")).name == "async"
    assert job.id
    await s.delete_async()
    return names


def test_async_doors(noted: Noted) -> None:
    assert asyncio.run(_all(noted.app, noted.note)) == ["async"]


def test_ticks_are_counted(noted: Noted) -> None:
    metrics = Metrics(noted.app.events)
    noted.app.schedules.create(noted.note, every=HOUR, name="m")
    travel(noted.app, 5 * HOUR + 60)
    drain(noted.app)
    text = metrics.text()
    assert 'penstock_ticks_total{outcome="fired",task="note"} 1' in text
    assert 'penstock_ticks_total{outcome="skipped_missed",task="note"} 4' in text
    assert 'penstock_tick_lateness_seconds_count{task="note"} 1' in text


def test_pruning_jobs_makes_no_tick_fire_again(make_app: Callable[..., Penstock]) -> None:
    noted = Noted(make_app(retention=0))
    s = noted.app.schedules.create(noted.note, every=HOUR, name="k")
    travel(noted.app, HOUR)
    drain(noted.app)
    noted.app.engine.chores.prune()
    begin = s.ticks()[0].nominal
    s.backfill(begin, begin)
    drain(noted.app)
    assert len(noted.calls) == 1
