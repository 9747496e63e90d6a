"""The tables and the types of their columns, without SQLAlchemy.

What is more to know of them, indexes and how each database keeps its rows, is in `tables`, for which SQLAlchemy is
needed. A test compares the two.
"""

from __future__ import annotations

from penstock.database.database import Database

COLUMNS = """
jobs: id uuid, task text, queue text, priority integer, payload text, options text, max_crashes integer,
  job_key text, origin_id uuid, run_id uuid, node text, path text, created_at bigint
job_keys: task text, job_key text, job_id uuid
job_labels: label text, job_id uuid
job_followers: job_id uuid, id uuid, outcome text, spec text, created_at bigint
queue_controls: kind text, name text, value text, revision bigint, changed_at bigint, changed_by text, why text
job_states: job_id uuid, status text, token bigint, process_id uuid, generation bigint, retry_count integer,
  crash_count integer, cancel_requested boolean, reason text, due_at bigint, claimed_at bigint, finished_at
  bigint
availabilities: queue text, tier integer, seq bigint, job_id uuid, task text
scheduled: due_at bigint, job_id uuid, queue text, tier integer, task text
claims: token bigint, process_id uuid, job_ids text, claimed_at bigint
executions: job_id uuid, generation bigint, process_id uuid, started_at bigint, finished_at bigint, outcome
  text, output text, error_type text, error text, traceback text
dead_letters: job_id uuid, task text, queue text, reason text, failed_at bigint, error_type text, place text,
  fingerprint text
markers: idempotency_key uuid, name text, value text, created_at bigint
progress: job_id uuid, fraction float, message text, updated_at bigint
processes: id uuid, host text, pid integer, role text, supervisor_id uuid, details text, started_at bigint,
  heartbeat_at bigint, reap_after bigint
cancellations: process_id uuid, job_id uuid
stack_dumps: process_id uuid, asked_at bigint, asked_by text, answered_at bigint, stacks text
leases: name text, holder uuid, expires_at bigint
definitions: hash text, name text, text text, created_at bigint
runs: id uuid, pipeline text, definition text, run_key text, args text, status text, mode text, failed
  integer, halted boolean, reasons text, result text, parent_run_id uuid, parent_job_id uuid, revived_from
  uuid, only_step text, created_at bigint, started_at bigint, paused_at bigint, ended_at bigint, rerun_of
  uuid, redefined boolean, reserved integer, lock_count bigint,
  scheduled_for bigint, forked_from uuid
run_keys: pipeline text, run_key text, run_id uuid
run_labels: label text, run_id uuid
joins: run_id uuid, node text, path text, still_open integer, blocked integer, pruned integer, winner text,
  fired boolean, width integer
advancements: id uuid, run_id uuid, node text, path text, width integer, phase text, next_index integer,
  problem text, created_at bigint, updated_at bigint
timers: due_at bigint, id uuid, kind text, run_id uuid, job_id uuid, data text
signals: run_id uuid, name text, value text, signalled_at bigint, headers text
element_signals: run_id uuid, name text, path text, value text, signalled_at bigint, headers text
tuples: run_id uuid, tuple_key text, value text, setter uuid, set_at bigint
run_lines: pipeline text, most integer, lock_count bigint
run_places: seq bigint, run_id uuid, pipeline text, most integer, admitted boolean
chains: downstream_id uuid, upstream_id uuid, created_at bigint
row_failures: reconciler text, row_key text, attempts integer, error_type text, error text, traceback text,
  failed_at bigint
reconciler_counts: reconciler text, process_id uuid, processed bigint, failed bigint, lost bigint, rate
  float, updated_at bigint
audits: id uuid, acted_at bigint, actor text, why text, act text, subject_kind text, subject_id uuid, run_id
  uuid, detail text
schedules: id uuid, name text, kind text, target text, definition text, payload text, options text, cron
  text, every bigint, zone text, missed text, missed_window bigint, missed_limit integer, overlap text,
  jitter bigint, start_at bigint, end_at bigint, next_at bigint, due_at bigint, waiting_at bigint, last_id
  uuid, backfills text, paused_at bigint, paused_by text, pause_why text, source text, revision text,
  superseded text, declared_at bigint, orphaned_at bigint, trouble text, created_at bigint, updated_at
  bigint
schedule_ticks: schedule_id uuid, nominal_at bigint, kind text, outcome text, target_id uuid, first_at
  bigint, number integer, lateness bigint, decided_at bigint
limits: limit_key text, most integer, lock_count bigint
slots: job_id uuid, limit_key text, token bigint, until bigint, place bigint
parked: limit_key text, tier integer, place bigint, job_id uuid, queue text, task text, demands text,
  parked_at bigint
tallies: seq bigint, tallied_at bigint, task text, queue text, outcome text, attempts bigint, failed bigint,
  run_micros bigint, longest bigint
rollups: span text, begins_at bigint, task text, queue text, outcome text, attempts bigint, failed bigint,
  run_micros bigint, longest bigint
queue_samples: span text, begins_at bigint, queue text, available bigint, lag bigint
"""


def _read(written: str) -> dict[str, dict[str, str]]:
    tables = written.replace("\n  ", " ").strip().splitlines()
    parts = [table.split(": ") for table in tables]
    return {name: dict(_pair(column) for column in columns.split(", ")) for name, columns in parts}


def _pair(column: str) -> tuple[str, str]:
    name, _, kind = column.partition(" ")
    return name, kind.upper()


COLUMN_TYPES = _read(COLUMNS)
"""By table: each column's type on PostgreSQL. Never changed after the import."""


def describe(database: Database) -> None:
    """Give a database the names of its tables and the types of their columns."""
    database.tables = list(COLUMN_TYPES)
    database.column_types = COLUMN_TYPES
