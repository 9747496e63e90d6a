"""The reference line: what a careful engineer writes by hand on psycopg, on Penstock's own tables.

Claim 100, run 100, settle 100, each one statement; a token, a floor, a history row. No leases, no retries, no
time-outs, no history of failures, no second kind of task. Five steps are one job whose worker commits each step's
output before the next begins, and tells the caller at the end.
"""

from __future__ import annotations

import random
from typing import Any

import psycopg

from bench.systems.base import STEPS, HandWrittenSystem
from bench.systems.penstock import PenstockSystem

BATCH = 100
CLAIM = """
WITH picked AS MATERIALIZED (
  SELECT seq, job_id FROM penstock_availabilities
  WHERE queue = 'default' AND tier = %(tier)s AND seq > %(floor)s
  ORDER BY seq LIMIT 100 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM penstock_availabilities
  WHERE queue = 'default' AND tier = %(tier)s AND seq = ANY(ARRAY(SELECT seq FROM picked))),
held AS (UPDATE penstock_job_states SET status = 'running', token = %(token)s, generation = generation + 1
  WHERE job_id = ANY(ARRAY(SELECT job_id FROM picked)) AND status = 'available' RETURNING job_id)
SELECT id, task, payload, (SELECT max(seq) FROM picked)
FROM penstock_jobs WHERE id = ANY(ARRAY(SELECT job_id FROM held))
"""
SETTLE = """
WITH done AS (UPDATE penstock_job_states SET status = 'succeeded', token = NULL, finished_at = 0
  WHERE job_id = ANY(%(ids)s::uuid[]) AND token = %(token)s AND status = 'running' RETURNING job_id)
INSERT INTO penstock_executions (job_id, generation, started_at, finished_at, outcome)
SELECT job_id, 1, 0, 0, 'succeeded' FROM done
"""


CHECKPOINTS = "CREATE TABLE checkpoints (run int, step int, output int, PRIMARY KEY (run, step))"
CHECKPOINT = "INSERT INTO checkpoints VALUES (%s, %s, %s)"
OUTPUT = "SELECT output FROM checkpoints WHERE run = %s AND step = %s"
PIPELINE = "five"


class BareSystem(PenstockSystem, HandWrittenSystem):
    """Enqueues as Penstock does; the loop is its own."""

    async def open(self) -> None:
        await super().open()
        self.connection = psycopg.connect(self.url, autocommit=True, prepare_threshold=1)

    async def enqueue(self, task: str, number: int) -> None:
        """The three rows and the NOTIFY in one transaction."""
        with self.connection.transaction(), self.connection.pipeline():
            job = "gen_random_uuid()"
            self.connection.execute(
                f"WITH job AS (INSERT INTO penstock_jobs (id, task, queue, priority, payload, created_at)"
                f" VALUES ({job}, %s, 'default', 0, %s, 0) RETURNING id), state AS (INSERT INTO penstock_job_states"
                " (job_id, status, generation, retry_count, crash_count, cancel_requested)"
                " SELECT id, 'available', 0, 0, 0, false FROM job)"
                " INSERT INTO penstock_availabilities (queue, tier, job_id, task)"
                " SELECT 'default', %s, id, '' FROM job",
                [task, str(number), self.tier],
            )
            self.connection.execute("SELECT pg_notify('bare', '')")

    async def run_pipeline(self, number: int) -> None:
        """Through the loop in another process: enqueue, wait to be told of the end, read the last output."""
        if number == 0:
            self.connection.execute(CHECKPOINTS)
            self.ended = psycopg.connect(self.url, autocommit=True)
            self.ended.execute("LISTEN bare_ended")
        await self.enqueue(PIPELINE, number)
        for _ in self.ended.notifies(timeout=30, stop_after=1):
            pass
        row = self.connection.execute(OUTPUT, [number, STEPS - 1]).fetchone()
        assert row == (STEPS,)

    async def checkpoint(self, number: int) -> None:
        """Five commits here and nothing else: so much the disk and the way to it take."""
        if number == 0:
            self.connection.execute(CHECKPOINTS)
        for step in range(STEPS):
            self.connection.execute(CHECKPOINT, [number, step, step + 1])

    def _do_steps(self, job: str, token: int, number: int) -> None:
        """Each output is committed before the next step begins; the last one with the end of the job."""
        connection, output = self.connection, 0
        for step in range(STEPS):
            output += 1
            if step < STEPS - 1:
                connection.execute(CHECKPOINT, [number, step, output])
        with connection.transaction(), connection.pipeline():
            connection.execute(CHECKPOINT, [number, STEPS - 1, output])
            connection.execute(SETTLE, {"ids": [job], "token": token})
            connection.execute("SELECT pg_notify('bare_ended', '')")

    async def work(self) -> None:
        connection = self.connection
        ear = psycopg.connect(self.url, autocommit=True)
        ear.execute("LISTEN bare")
        floor = 0
        while True:
            token = random.getrandbits(62)
            rows: list[Any] = connection.execute(
                CLAIM, {"floor": floor, "token": token, "tier": self.tier}
            ).fetchall()
            if not rows:
                for _ in ear.notifies(timeout=1, stop_after=1):
                    pass
                continue
            floor = rows[0][3]
            if rows[0][1] == PIPELINE:
                for job, _, payload, _ in rows:
                    self._do_steps(job, token, int(payload))
                continue
            for _, task, payload, _ in rows:
                if task == "mark":
                    await self.do_mark(int(payload))
                else:
                    await self.do_noop(0)
            connection.execute(SETTLE, {"ids": [row[0] for row in rows], "token": token})
