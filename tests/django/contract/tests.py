"""The contract of a backend of `django.tasks`, and of `penstock.django` around it."""

import asyncio
import io
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client, TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from penstock.django import TaskBackend, app
from penstock.django.task_backend import DurableTask
from penstock.django.tasks_api import (
    PACKAGE,
    InvalidTask,
    TaskResultDoesNotExist,
    exceptions,
    task_enqueued,
    task_finished,
    task_started,
)
from penstock.errors import PenstockError
from penstock.testing import assert_enqueued, crash_at, drain, drain_async, travel
from tests.django.contract import tasks
from tests.waiting import until

TASKS = __import__(PACKAGE, fromlist=["x"])
A_MOMENT = timedelta(milliseconds=5)
"""SQLite's clock has milliseconds only."""
READY, RUNNING, FAILED, SUCCESSFUL = "READY", "RUNNING", "FAILED", "SUCCESSFUL"


@contextmanager
def heard() -> Iterator[list[tuple[str, str, bool]]]:
    """Each signal that is sent inside: its name, the status then, and whether an exception is being handled."""
    said: list[tuple[str, str, bool]] = []

    def listen(name: str) -> Any:
        def receive(sender: Any, task_result: Any, **_: Any) -> None:
            assert sender is TaskBackend
            said.append((name, str(task_result.status), sys.exc_info()[0] is not None))

        return receive

    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = {name: listen(name) for name in signals}
    for name, signal in signals.items():
        signal.connect(receivers[name])
    try:
        yield said
    finally:
        for name, signal in signals.items():
            signal.disconnect(receivers[name])


class Enqueue(TestCase):
    """In the transaction of the test: the job is there, and no worker sees it."""

    def test_a_new_result_says_that_it_waits(self) -> None:
        with heard() as said:
            result = tasks.echo.enqueue(1, (2, b"3"), two={"four": None})
        assert said == [("enqueued", READY, False)]
        assert (result.status, result.is_finished, result.attempts) == (READY, False, 0)
        assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
        assert (result.args, result.kwargs) == ([1, [2, "3"]], {"two": {"four": None}})
        assert (result.errors, result.worker_ids, result.backend) == ([], [], "default")
        assert result.task == tasks.echo
        assert abs(result.enqueued_at - timezone.now()) < timedelta(minutes=1)
        with self.assertRaisesRegex(ValueError, "not finished"):
            _ = result.return_value

    def test_a_result_is_found_again(self) -> None:
        result = tasks.echo.enqueue(1)
        assert tasks.echo.get_result(result.id) == result
        assert TASKS.default_task_backend.get_result(result.id) == result
        result.refresh()
        assert result.status == READY
        for unknown in ("123", "", "0198c0de-0000-7000-8000-000000000000"):
            with self.assertRaises(TaskResultDoesNotExist):
                TASKS.default_task_backend.get_result(unknown)
        with self.assertRaises(exceptions.TaskResultMismatch):
            tasks.meaning.get_result(result.id)
        with self.assertRaises(TaskResultDoesNotExist):
            TASKS.task_backends["patient"].get_result(result.id)

    async def test_async_callers_get_the_same(self) -> None:
        result = await tasks.echo.aenqueue(1)
        assert await tasks.echo.aget_result(result.id) == result
        await result.arefresh()
        with self.assertRaises(TaskResultDoesNotExist):
            await TASKS.default_task_backend.aget_result("123")
        with self.assertRaises(exceptions.TaskResultMismatch):
            await tasks.meaning.aget_result(result.id)

    def test_it_belongs_to_the_transaction(self) -> None:
        with transaction.atomic():
            result = tasks.echo.enqueue(1)
            transaction.set_rollback(True)
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.echo.get_result(result.id)
        assert_enqueued(app, "tests.django.contract.tasks.echo", count=0)

    def test_values_that_are_not_json_are_refused(self) -> None:
        for wrong in (object(), datetime.now(), {1, 2}):
            with self.assertRaisesRegex(TypeError, "Unsupported type"):
                tasks.echo.enqueue(wrong)
        with self.assertRaises(ValueError):
            tasks.echo.enqueue(b"\xff")

    def test_tasks_that_cannot_be_run_are_refused(self) -> None:
        for options in ({"priority": 101}, {"priority": -101}, {"priority": 1.5}, {"queue_name": "other"}):
            with self.assertRaises(InvalidTask):
                tasks.echo.using(**options)
        with self.assertRaises(InvalidTask):
            tasks.echo.using(run_after=datetime.now())
        with self.assertRaises(InvalidTask):
            tasks.task(lambda: None)
        with self.assertRaises(InvalidTask):
            tasks.task(takes_context=True)(tasks.meaning.func)
        with self.assertRaisesRegex(InvalidTask, "process"):
            tasks.task(executor="process")(tasks.meaning.func)
        with self.assertRaises(TypeError):
            tasks.echo.using(retries=3)
        assert tasks.echo.using(priority=100, queue_name="mail").priority == 100
        assert tasks.fail_patiently.using(queue_name="whatever").queue_name == "whatever"

    def test_a_key_names_one_job(self) -> None:
        first = tasks.echo.using(key="a").enqueue(1)
        assert tasks.echo.using(key="a").enqueue(2) == first
        assert tasks.echo.using(key="b").enqueue(2).id != first.id

    def test_drain_is_refused_in_the_transaction_of_a_test(self) -> None:
        tasks.echo.enqueue(1)
        with self.assertRaisesRegex(PenstockError, "TransactionTestCase"):
            drain(app)

    def test_all_four_abilities_are_there(self) -> None:
        backend = TASKS.default_task_backend
        assert backend.supports_defer
        assert backend.supports_async_task
        assert backend.supports_get_result
        assert backend.supports_priority
        assert backend.task_class is DurableTask

    def test_checks(self) -> None:
        assert run_checks() == []
        assert run_checks(databases=["default"]) == []
        wrong = {"default": {"BACKEND": "penstock.django.TaskBackend", "OPTIONS": {"retires": 1}}}
        with override_settings(TASKS=wrong):
            assert [found.id for found in run_checks()] == ["penstock.E005"]
        with override_settings(INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"]):
            assert [found.id for found in TASKS.default_task_backend.check()] == ["penstock.E004"]

    def test_a_task_can_be_pickled_where_django_allows_it(self) -> None:
        if hasattr(tasks.echo, "_reconstruct"):
            assert pickle.loads(pickle.dumps(tasks.fail_thrice)) == tasks.fail_thrice


class Work(TransactionTestCase):
    """Jobs that are run."""

    def test_a_result_is_returned(self) -> None:
        for task in (tasks.echo, tasks.echo_async):
            with heard() as said:
                result = task.enqueue(1, two=3)
                assert drain(app) == 1
            result.refresh()
            assert said == [
                ("enqueued", READY, False),
                ("started", RUNNING, False),
                ("finished", SUCCESSFUL, False),
            ]
            assert (result.status, result.is_finished, result.attempts) == (SUCCESSFUL, True, 1)
            assert result.return_value == {"args": [1], "kwargs": {"two": 3}}
            assert result.enqueued_at - A_MOMENT <= result.started_at <= result.finished_at
            assert result.started_at == result.last_attempted_at
            assert len(result.worker_ids) == 1
            assert task.get_result(result.id) == result

    def test_an_error_is_told(self) -> None:
        kinds = {(tasks.fail, ()): ValueError, (tasks.fail, ("own",)): tasks.OwnError}
        for (task, args), kind in {**kinds, (tasks.fail_async, ()): ValueError}.items():
            with heard() as said:
                result = task.enqueue(*args)
                drain(app)
            result.refresh()
            assert said[1:] == [("started", RUNNING, False), ("finished", FAILED, True)]
            assert (result.status, result.is_finished, result.attempts) == (FAILED, True, 1)
            (error,) = result.errors
            assert error.exception_class is kind
            assert task.func.__name__ in error.traceback
            with self.assertRaisesRegex(ValueError, "Task failed"):
                _ = result.return_value

    def test_wrong_arguments_and_results_are_the_jobs_own_failure(self) -> None:
        results = [tasks.meaning.enqueue(1), tasks.return_object.enqueue()]
        drain(app)
        for result in results:
            result.refresh()
            assert result.status == FAILED
            assert result.errors[0].exception_class is TypeError

    def test_the_context_is_given(self) -> None:
        result, waited = tasks.with_context.enqueue(7), tasks.with_context_async.enqueue()
        drain(app)
        result.refresh()
        waited.refresh()
        assert result.return_value == [result.id, 1, RUNNING, 7]
        assert waited.return_value == 1

    def test_retries_are_ready_in_between(self) -> None:
        with heard() as said:
            result = tasks.fail_thrice.enqueue()
            drain(app)
            result.refresh()
            assert (result.status, result.attempts, len(result.errors)) == (READY, 1, 1)
            with travel(app, 3600):
                drain(app)
                result.refresh()
                assert (result.status, result.attempts) == (READY, 2)
            with travel(app, 2 * 3600):
                drain(app)
            result.refresh()
        assert (result.status, result.attempts, len(result.errors)) == (FAILED, 3, 3)
        assert [name for name, _, _ in said] == ["enqueued", "started", "started", "started", "finished"]
        assert app.tasks[tasks.fail_patiently.module_path].settings.retries.max == 1
        assert app.tasks[tasks.fail.module_path].settings.retries.max == 0
        assert app.tasks[tasks.fail_impatiently.module_path].settings.retries.max == 0

    def test_priority_and_time_say_who_is_first(self) -> None:
        tasks.SEEN.clear()
        tasks.note.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("later")
        for priority in (0, -100, 100, 7):
            tasks.note.using(priority=priority).enqueue(priority)
        drain(app)
        assert tasks.SEEN == [100, 7, 0, -100]
        with travel(app, 2 * 3600):
            drain(app)
        assert tasks.SEEN[4:] == ["later"]

    def test_a_deferred_result_says_so(self) -> None:
        then = timezone.now() + timedelta(hours=1)
        result = tasks.note.using(run_after=then).enqueue("later")
        assert abs(tasks.note.get_result(result.id).task.run_after - then) < A_MOMENT
        with override_settings(USE_TZ=False):
            naive = tasks.note.using(run_after=datetime.now() + timedelta(hours=1)).enqueue("later")
            assert timezone.is_naive(naive.enqueued_at)
            assert drain(app) == 0

    def test_queues(self) -> None:
        result = tasks.meaning.using(queue_name="mail").enqueue()
        assert drain(app, queues="default") == 0
        assert drain(app, queues="mail") == 1
        assert tasks.meaning.get_result(result.id).task.queue_name == "mail"

    def test_time_limits_and_cancelling_fail_the_result(self) -> None:
        late, cancelled = tasks.sleep_too_long.enqueue(), tasks.meaning.enqueue()
        with heard() as said:
            assert app.job(cancelled.id).cancel()
            assert said == [("finished", FAILED, False)]
            drain(app)
        assert said[1:] == [("started", RUNNING, False), ("finished", FAILED, False)]
        late.refresh()
        cancelled.refresh()
        assert (late.status, late.errors[0].exception_class) == (FAILED, TimeoutError)
        assert (cancelled.status, cancelled.attempts) == (FAILED, 0)

    def test_a_task_that_cancels_itself_has_finished(self) -> None:
        result = tasks.give_up.enqueue()
        with heard() as said:
            drain(app)
        result.refresh()
        assert (result.status, said) == (FAILED, [("started", RUNNING, False), ("finished", FAILED, False)])

    def test_the_death_of_the_last_worker_is_told_by_the_next(self) -> None:
        result = tasks.fragile.enqueue()
        with heard() as said:
            with crash_at("execute.before") as crash:
                drain(app)
            assert crash.crashed
            with travel(app, 600):
                drain(app)
        result.refresh()
        assert (result.status, result.attempts) == (FAILED, 1)
        assert said == [("finished", FAILED, False)]

    def test_a_thread_that_goes_on_after_its_time_tells_nothing_more(self) -> None:
        may_end = tasks.MAY_END = threading.Event()

        async def main() -> list[Any]:
            with heard() as said:
                async with app.worker():
                    result = await tasks.wait_too_long.aenqueue()
                    await until(lambda: "finished" in [name for name, *_ in said])
                    may_end.set()
                    await until(lambda: "ended" in tasks.SEEN)
                await result.arefresh()
            return [result.status, *sorted(said)]

        tasks.SEEN.clear()
        told = asyncio.run(main())
        # The worker may begin before the enqueue has told of itself.
        assert told == [
            FAILED,
            ("enqueued", READY, False),
            ("finished", FAILED, False),
            ("started", RUNNING, False),
        ]

    def test_the_end_is_told_once_it_is_committed(self) -> None:
        ends = {
            tasks.meaning: SUCCESSFUL,
            tasks.echo_async: SUCCESSFUL,
            tasks.fail: FAILED,
            tasks.fail_async: FAILED,
            tasks.give_up: FAILED,
            tasks.complete_inside: SUCCESSFUL,
        }
        found: dict[str, tuple[str, str]] = {}

        def receive(task_result: Any, **_: Any) -> None:
            recorded = TASKS.default_task_backend.get_result(task_result.id)
            assert recorded == task_result
            assert recorded.task.func.__name__ not in found, "told twice"
            found[recorded.task.func.__name__] = (recorded.status, task_result.status)

        task_finished.connect(receive)
        try:
            for task in ends:
                task.enqueue()
            drain(app)
        finally:
            task_finished.disconnect(receive)
        assert found == {task.func.__name__: (status, status) for task, status in ends.items()}

    def test_a_claim_that_was_lost_tells_no_end(self) -> None:
        result = tasks.lose_claim.enqueue()
        with heard() as said:
            drain(app)
        result.refresh()
        assert (result.status, said) == (FAILED, [("started", RUNNING, False)])

    def test_slow_receivers_are_waited_for_when_the_worker_stops(self) -> None:
        told: list[str] = []
        threads: set[str] = set()

        def receive(task_result: Any, **_: Any) -> None:
            time.sleep(0.02)
            threads.add(threading.current_thread().name)
            told.append(task_result.id)

        async def main() -> list[str]:
            async with app.worker():
                results = [await tasks.meaning.aenqueue() for _ in range(10)]
                await until(lambda: told)
            return [result.id for result in results]

        task_finished.connect(receive)
        try:
            made = asyncio.run(main())
        finally:
            task_finished.disconnect(receive)
        done = [id for id in made if TASKS.default_task_backend.get_result(id).is_finished]
        assert (sorted(told), bool(done)) == (sorted(done), True)
        assert threads == {"penstock-signals_0"}

    def test_a_limit_by_an_argument_of_the_function(self) -> None:
        results = [tasks.by_account.enqueue(account) for account in (1, 1, 2)]
        assert drain(app) == 3
        for result in results:
            result.refresh()
        assert [result.return_value for result in results] == [1, 1, 2]

    def test_a_task_under_another_name_than_its_function(self) -> None:
        result = tasks.renamed.enqueue()
        drain(app)
        result.refresh()
        assert result.return_value == "done"

    def test_a_queue_that_is_not_allowed_any_more_harms_no_job(self) -> None:
        result = tasks.meaning.using(queue_name="mail").enqueue()
        fewer = {"default": {"BACKEND": "penstock.django.TaskBackend", "QUEUES": ["default"]}}
        with override_settings(TASKS=fewer):
            assert drain(app) == 1
            assert tasks.meaning.get_result(result.id).return_value == 42

    async def test_async_tests_drain_on_their_own_loop(self) -> None:
        result = await tasks.echo_async.aenqueue(1)
        assert await drain_async(app) == 1
        await result.arefresh()
        assert result.return_value == {"args": [1], "kwargs": {}}

    def test_a_job_of_penstocks_own_is_no_result_of_django_tasks(self) -> None:
        @app.task(name="plain")
        def plain() -> None: ...

        job = plain.enqueue()
        with self.assertRaises(TaskResultDoesNotExist):
            TASKS.default_task_backend.get_result(job.id)
        del app.tasks["plain"]

    def test_a_job_is_not_visible_before_the_commit(self) -> None:
        with transaction.atomic():
            job = tasks.meaning.enqueue()
            assert app.job(job.id).status == "available"
        assert drain(app) == 1

    def test_each_test_begins_with_nothing(self) -> None:
        assert drain(app) == 0
        assert app.settings.database_url.count("test_") or connection.vendor == "sqlite"


class Commands(TransactionTestCase):
    """The whole command line under manage.py."""

    def test_commands(self) -> None:
        tasks.meaning.enqueue()
        for command, code in (("status", 0), ("jobs", 0), ("check", 0), ("migrate", 0), ("nonsense", 2)):
            with self.subTest(command), self.assertRaises(SystemExit) as ended:
                call_command("penstock", command, stdout=io.StringIO())
            assert ended.exception.code == code

    def test_advice_names_the_command_of_the_project(self) -> None:
        with redirect_stdout(io.StringIO()) as said, self.assertRaises(SystemExit):
            call_command("penstock", "doctor")
        assert "Start one: manage.py penstock worker\n" in said.getvalue(), said.getvalue()


class Dashboard(TransactionTestCase):
    """The pages for staff; rights are Django's permissions."""

    def test_who_may_look_and_act(self) -> None:
        tasks.meaning.enqueue()
        browser = Client()
        answer = browser.get("/jobs/jobs")
        assert (answer.status_code, answer["Location"]) == (302, "/admin/login/?next=/jobs/jobs")
        ann = User.objects.create_user("ann", password="x")
        browser.force_login(ann)
        assert browser.get("/jobs/").status_code == 403
        ann.is_staff = True
        ann.save()
        assert browser.get("/jobs/").status_code == 403
        assert b"Jobs and runs" not in browser.get("/admin/").content
        ann.user_permissions.add(Permission.objects.get(codename="view_dashboard"))
        page = browser.get("/jobs/jobs")
        assert page.status_code == 200
        assert b"tests.django.contract.tasks.meaning" in page.content
        assert b"Jobs and runs" in browser.get("/admin/").content
        assert browser.get("/admin/penstock/dashboardentry/")["Location"] == "/jobs/"

    def test_acts_need_their_right_and_the_same_site(self) -> None:
        job = app.job(tasks.meaning.enqueue().id)
        browser = Client(enforce_csrf_checks=True)
        boss = User.objects.create_user("boss", password="x", is_staff=True)
        boss.user_permissions.add(Permission.objects.get(codename="view_dashboard"))
        browser.force_login(boss)
        here = {"HTTP_ORIGIN": "http://testserver"}
        form = {"id": job.id, "back": "/jobs"}
        act = "/jobs/act/cancel-jobs"
        sent = {"data": _encoded(form), "content_type": "application/x-www-form-urlencoded"}
        assert browser.post(act, **sent, **here).status_code == 403
        boss.user_permissions.add(Permission.objects.get(codename="operate_dashboard"))
        assert browser.post(act, **sent, HTTP_ORIGIN="http://elsewhere").status_code == 403
        answer = browser.post(act, **sent, **here)
        assert (answer.status_code, answer["Location"]) == (303, "/jobs/jobs")
        assert job.status == "cancelled"
        assert app.audit(limit=1)[0].by == "boss"
        new = {"target": "tests.django.contract.tasks.meaning", "name": "new", "every": "1h"}
        sent["data"] = _encoded(new)
        made = "/jobs/act/create-schedule"
        assert browser.post(made, **sent, **here).status_code == 403
        boss.user_permissions.add(Permission.objects.get(codename="enqueue_work"))
        assert browser.post(made, **sent, **here).status_code != 403


def _encoded(form: dict[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in form.items())
