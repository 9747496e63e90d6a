"""What the driver asks the server about each system, and the past it invents for it. Plain SQL: the peers' libraries
are not installed where the driver runs.
"""

UNFINISHED = {
    # By the key, so that asking does not read all that was finished long ago: the ids of those begin with zeros.
    "penstock": """
    SELECT count(*) FROM penstock_job_states
    WHERE job_id > '01000000-0000-0000-0000-000000000000' AND status IN ('available', 'running', 'scheduled')
    """,
    "pgqueuer": "SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked')",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    "chancy": "SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')",
    "dbos": "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
}
"""How many jobs are not yet durably finished."""

FINISHED = {
    "penstock": """
    WITH ids AS MATERIALIZED (
      SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id
      FROM generate_series($first, $last) n),
    a AS (INSERT INTO penstock_jobs (id, task, queue, priority, payload, created_at)
      SELECT id, 'noop', 'default', 0, '{"number":0}', 0 FROM ids),
    b AS (INSERT INTO penstock_job_states
      (job_id, status, generation, retry_count, crash_count, cancel_requested, finished_at)
      SELECT id, 'succeeded', 1, 0, 0, false, extract(epoch FROM now()) * 1000000 FROM ids)
    INSERT INTO penstock_executions (job_id, generation, started_at, finished_at, outcome)
      SELECT id, 1, 0, 0, 'succeeded' FROM ids
    """,
    "pgqueuer": """
    INSERT INTO pgqueuer_log (created, job_id, status, priority, entrypoint, aggregated)
      SELECT now(), n, 'successful', 0, 'noop', true FROM generate_series($first, $last) n
    """,
    "procrastinate": """
    INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts)
      SELECT 'default', 'noop', '{"number": 0}', 'succeeded', 1 FROM generate_series($first, $last) n
    """,
    "chancy": """
    INSERT INTO chancy_jobs (id, queue, func, kwargs, limits, meta, state, priority, attempts, max_attempts,
                             created_at, scheduled_at, started_at, completed_at)
      SELECT gen_random_uuid(), 'default', 'bench.systems.chancy.noop', '{}', '[]', '{}', 'succeeded', 0, 1, 1,
             now(), now(), now(), now() FROM generate_series($first, $last) n
    """,
    "dbos": """
    INSERT INTO dbos.workflow_status (workflow_uuid, status, name, queue_name, application_version, executor_id,
                                      created_at, updated_at)
      SELECT 'old-' || n, 'SUCCESS', 'noop', 'bench', '1', 'local', 0, 0 FROM generate_series($first, $last) n
    """,
}
"""Jobs number $first to $last, finished long ago."""

UNFINISHED["bare"] = UNFINISHED["penstock"]
FINISHED["bare"] = FINISHED["penstock"]
