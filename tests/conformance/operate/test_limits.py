"""operate/jobs, operate/overview: operators see that a job waits for a limit, its key, and the length of its line."""

import json

from penstock import Concurrency, Penstock, Rate
from penstock.operate import jobs
from penstock.operate.jobs import JobFilter
from penstock.operate.overview import gauges
from penstock.testing import drain
from tests.commands import call
from tests.conformance.operate.helpers import look

KEY = "rate/60s of note: account=a"


def test_status_jobs_and_show_say_what_a_job_waits_for(app: Penstock, database_url: str) -> None:
    def penstock(*arguments: str) -> str:
        done = call(*arguments, "--database", database_url)
        assert done.exit_code == 0
        return done.output

    @app.task(name="note", limits=[Rate(1, per=60, key="account"), Concurrency(5)])
    def note(account: str) -> None: ...

    waiting = note.enqueue_many([("a",), ("a",), ("a",)])[2]
    drain(app)
    (queue,) = look(app).queues
    assert (queue.queue, queue.available, queue.limited) == ("default", 0, 2)
    assert 'penstock_queue_jobs{queue="default",status="limited"} 2' in gauges(look(app))
    page = app.database.read(jobs.list_jobs, JobFilter())
    assert [job.waits_for for job in page.jobs] == [KEY, KEY, None]
    story = app.database.read(jobs.job_report, waiting.id)
    assert story is not None
    assert tuple(story.line or ()) == (1, 1, 1)
    assert f"waits for   {KEY} (1 of 1 taken; 1 before it)" in penstock("show", waiting.id)
    assert "waits for rate/60s" in " ".join(penstock("jobs").split())
    assert json.loads(penstock("status", "--json"))["queues"][0]["limited"] == 2
    waiting.cancel()
    assert app.database.read(jobs.list_jobs, JobFilter()).jobs[0].waits_for is None
