"""A claim, and the settling of successes, each as the one statement that PostgreSQL can make of it."""

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
SUCCEED_CTES = """
WITH batch AS MATERIALIZED (
  SELECT * FROM json_to_recordset(CAST(:batch AS json))
    AS r(job_id uuid, token bigint, generation bigint, began_ago bigint, ended_ago bigint, output text)),
done AS (
  UPDATE {job_states} s SET status = 'succeeded', token = NULL, process_id = NULL, reason = NULL, finished_at = {now}
  WHERE s.job_id = ANY(ARRAY(SELECT job_id FROM batch)) AND s.status = 'running' AND NOT s.cancel_requested
    AND (s.job_id, s.token) IN (SELECT job_id, token FROM batch)
  RETURNING s.job_id),
history AS (
  INSERT INTO {executions} (job_id, generation, process_id, started_at, finished_at, outcome, output)
  SELECT b.job_id, b.generation, CAST(:process AS uuid), {now} - b.began_ago, {now} - b.ended_ago, 'succeeded', b.output
  FROM batch b JOIN done USING (job_id)),
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
  RETURNING job_id),
history AS (
  INSERT INTO {executions} (job_id, generation, process_id, started_at, finished_at, outcome, output)
  SELECT job_id, :generation, CAST(:process AS uuid), {now} - CAST(:began_ago AS bigint),
         {now} - CAST(:ended_ago AS bigint), 'succeeded', CAST(:output AS text) FROM done),
receipts AS (DELETE FROM {claims} WHERE token = ANY(CAST(:tokens AS bigint[])))
"""
ONE_SUCCEEDS = ONE_SUCCEEDS_CTES + "SELECT job_id FROM done"
ONE_IS_TO_SUCCEED = ONE_SUCCEEDS_CTES + "SELECT 1 / (SELECT count(*) FROM done)"
