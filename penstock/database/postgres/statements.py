"""A claim, and the settling of successes, each as the one statement that PostgreSQL can make of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from penstock.database.dialect import FIELD, Parameters, TableWrite

# Nothing here may depend on what the planner believes about the tables' sizes: the inner SELECT on the jobs keeps its
# index scan (OFFSET 0 is a fence), and a full join is never done by comparing each row with each (nothing is added by
# it: what is held was picked). Rows are deleted by their address, so the narrow table needs one index only.
HOLD_PICKED = """
gone AS (DELETE FROM {availabilities} WHERE ctid = ANY(ARRAY(SELECT address FROM picked))),
held AS (
  UPDATE {job_states} SET status = 'running', token = :token, process_id = CAST(:process AS uuid),
    generation = generation + 1, claimed_at = {now}
  WHERE job_id = ANY(ARRAY(SELECT job_id FROM picked)) AND status = 'available'
  RETURNING job_id, generation, retry_count, crash_count),
receipt AS (
  INSERT INTO {claims} (token, process_id, job_ids, claimed_at)
  SELECT :token, CAST(:process AS uuid), json_agg(job_id)::text, {now} FROM held HAVING count(*) > 0)
SELECT p.job_id, p.queue, p.tier, p.seq, h.generation, h.retry_count, h.crash_count,
       j.task, j.payload, j.options, j.origin_id, j.run_id, j.node, j.path, j.max_crashes
FROM picked p FULL JOIN held h ON h.job_id = p.job_id
FULL JOIN (SELECT * FROM {jobs} WHERE id = ANY(ARRAY(SELECT job_id FROM held)) OFFSET 0) j ON j.id = p.job_id
ORDER BY p.tier, p.seq
"""
TAKE_READY = (
    """
WITH picked AS MATERIALIZED (
  SELECT ready.* FROM json_to_recordset(CAST(:lanes AS json)) AS lane(queue text, tier int, floor bigint, cap int)
  CROSS JOIN LATERAL (
    SELECT a.ctid AS address, a.seq, a.job_id, a.queue, a.tier FROM {availabilities} a
    WHERE a.queue = lane.queue AND a.tier = lane.tier AND a.seq > lane.floor
      AND a.task = ANY(CAST(:tasks AS text[]))
    ORDER BY a.seq LIMIT lane.cap FOR UPDATE SKIP LOCKED) ready
  WHERE EXISTS (SELECT 1 FROM {processes} WHERE id = CAST(:process AS uuid))
  LIMIT :limit),"""
    + HOLD_PICKED
)
# The same from one lane, which is what there mostly is: a fifth less for one that is empty.
TAKE_READY_OF_ONE = (
    """
WITH picked AS MATERIALIZED (
  SELECT a.ctid AS address, a.seq, a.job_id, a.queue, a.tier FROM {availabilities} a
  WHERE a.queue = :queue AND a.tier = :tier AND a.seq > :floor AND a.task = ANY(CAST(:tasks AS text[]))
    AND EXISTS (SELECT 1 FROM {processes} WHERE id = CAST(:process AS uuid))
  ORDER BY a.seq LIMIT :limit FOR UPDATE SKIP LOCKED),"""
    + HOLD_PICKED
)

# The common case in one statement: the fence, the end of the job, its execution and the receipts of empty claims.
# An IN that is asked whether it IS TRUE is no join to the planner: it is looked up in a hash table, on every version
# and whatever the statistics say. PostgreSQL 15 did it as a join that compares each with each: 53 µs a job.
SUCCEED_CTES = """
WITH batch AS MATERIALIZED (
  SELECT * FROM json_to_recordset(CAST(:batch AS json))
    AS r(job_id uuid, token bigint, generation bigint, began_ago bigint, ended_ago bigint, output text)),
done AS (
  UPDATE {job_states} s SET status = 'succeeded', token = NULL, process_id = NULL, reason = NULL, finished_at = {now}
  WHERE s.job_id = ANY(ARRAY(SELECT job_id FROM batch)) AND s.status = 'running' AND NOT s.cancel_requested
    AND s.reason IS NULL AND ((s.job_id, s.token) IN (SELECT job_id, token FROM batch)) IS TRUE
  RETURNING s.job_id),
history AS (
  INSERT INTO {executions} (job_id, generation, process_id, started_at, finished_at, outcome, output)
  SELECT b.job_id, b.generation, CAST(:process AS uuid), {now} - b.began_ago, {now} - b.ended_ago, 'succeeded', b.output
  FROM batch b WHERE (b.job_id IN (SELECT job_id FROM done)) IS TRUE),
receipts AS (DELETE FROM {claims} WHERE token = ANY(CAST(:tokens AS bigint[])))
"""
SUCCEED = SUCCEED_CTES + "SELECT job_id FROM done"
ALL_SUCCEED = (
    SUCCEED_CTES + "SELECT 1 / (CASE WHEN (SELECT count(*) FROM done) = :expected THEN 1 ELSE 0 END)"
)

# The same for one job. A recordset costs more than everything that is done with its only row.
ONE_SUCCEEDS_CTES = """
WITH done AS (
  UPDATE {job_states} SET status = 'succeeded', token = NULL, process_id = NULL, reason = NULL, finished_at = {now}
  WHERE job_id = CAST(:job_id AS uuid) AND token = :token AND status = 'running' AND NOT cancel_requested
    AND reason IS NULL
  RETURNING job_id),
history AS (
  INSERT INTO {executions} (job_id, generation, process_id, started_at, finished_at, outcome, output)
  SELECT job_id, :generation, CAST(:process AS uuid), {now} - CAST(:began_ago AS bigint),
         {now} - CAST(:ended_ago AS bigint), 'succeeded', CAST(:output AS text) FROM done),
receipts AS (DELETE FROM {claims} WHERE token = ANY(CAST(:tokens AS bigint[])))
"""
ONE_SUCCEEDS = ONE_SUCCEEDS_CTES + "SELECT job_id FROM done"
ONE_IS_TO_SUCCEED = ONE_SUCCEEDS_CTES + "SELECT 1 / (SELECT count(*) FROM done)"


# What must be so, or the transaction fails: by a division by zero, which nothing waits for.


@cache
def failing_unless(condition: str) -> str:
    return f"SELECT 1 / (CASE WHEN {condition} THEN 1 ELSE 0 END)"


@cache
def failing_unless_changed(update: str) -> str:
    return f"WITH changed AS ({update} RETURNING 1) {failing_unless('count(*) = :expected')} FROM changed"


# How PostgreSQL writes a batch into several tables: one statement, which takes the whole batch as one parameter.

ColumnTypes = Mapping[str, Mapping[str, str]]


def of_rows(column_types: ColumnTypes, writes: Sequence[TableWrite], row: Parameters) -> str:
    """The batch as a recordset of rows like this one, and an INSERT … SELECT from it for each table."""
    types = _types(column_types, writes)
    wanted = {name for write in writes for text in write.columns.values() for name in FIELD.findall(text)}
    fields = [name for name in row if name in wanted]
    record = ", ".join(f"{name} {types.get(name, 'bigint')}" for name in fields)
    # As text first: a caller's driver may have been told to make JSON of whatever is sent as JSON.
    sent = "CAST(CAST(:batch AS text) AS json)"
    batch = f"batch AS MATERIALIZED (SELECT * FROM json_to_recordset({sent}) AS r({record}))"

    def source(match: re.Match[str]) -> str:
        name = match[1]
        return f"batch.{name}" if name in fields else f"CAST(:{name} AS {types[name]})"

    inserts = [_insert(write, source, "SELECT {} FROM batch") for write in writes]
    return _together([batch], inserts)


def of_one_row(column_types: ColumnTypes, writes: Sequence[TableWrite]) -> str:
    """The fields of the row as parameters: a recordset costs more than to write what is in it."""
    types = _types(column_types, writes)

    def source(match: re.Match[str]) -> str:
        return f"CAST({match[0]} AS {types.get(match[1], 'bigint')})"

    return _together([], [_insert(write, source, "VALUES ({})") for write in writes])


def _types(column_types: ColumnTypes, writes: Iterable[TableWrite]) -> dict[str, str]:
    types: dict[str, str] = {}
    for write in writes:
        types = dict(column_types[write.table]) | types
    return types


def _insert(write: TableWrite, source: Callable[[re.Match[str]], str], shape: str) -> str:
    values = ", ".join([FIELD.sub(source, expression) for expression in write.columns.values()])
    ending = " ON CONFLICT DO NOTHING" if write.ignore_duplicates else ""
    return f"INSERT INTO {{{write.table}}} ({', '.join(write.columns)}) {shape.format(values)}{ending}"


def _together(before: Sequence[str], inserts: Sequence[str]) -> str:
    parts = [*before, *[f"w{i} AS ({insert})" for i, insert in enumerate(inserts[:-1])]]
    return f"WITH {', '.join(parts)} {inserts[-1]}" if parts else inserts[-1]
