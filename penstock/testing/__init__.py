"""The test kit for applications: run jobs inside the test, move the clock, crash a worker at a named point.

`drain(app)` runs everything due in the caller; `inline(app)` runs each job where it is enqueued;
`travel(app, 60)` moves the database's clock for one app; `assert_enqueued(app, task, ...)` looks at what was
enqueued; `crash_at("settle.commit")` ends the worker at a named point. Nothing sleeps and nothing is faked: the
same statements run as in production.
"""

from penstock.telemetry.fault_points import SimulatedCrash
from penstock.testing.clock import Travel, travel
from penstock.testing.crash import Crash, crash_at
from penstock.testing.drain import drain, drain_async
from penstock.testing.enqueued import assert_enqueued, assert_enqueued_async
from penstock.testing.inline import inline

__all__ = [
    "Crash",
    "SimulatedCrash",
    "Travel",
    "assert_enqueued",
    "assert_enqueued_async",
    "crash_at",
    "drain",
    "drain_async",
    "inline",
    "travel",
]
