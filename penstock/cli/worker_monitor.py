"""Metrics and probes of a worker, over HTTP: of one process, or of a supervisor and all its children.

`/metrics`: what its processes have counted, added up, and the state of all queues. `/livez`: event loops turn.
`/readyz`: the database answers, its schema is the one of this version, and there is a process that works.

Each child counts in memory that it shares with its supervisor. When a child ends, in whatever way, the supervisor keeps
what it had counted, so that no sum ever goes back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.operate.overview import gauges, overview
from penstock.schema import version
from penstock.telemetry.events import StopRequested
from penstock.telemetry.metric_values import SharedNumbers, add_up
from penstock.telemetry.metrics import Metrics, families
from penstock.telemetry.metrics_server import MetricsServer, ProbeAnswer
from penstock.telemetry.prometheus_text import Family, expose
from penstock.values.failure import Failure

if TYPE_CHECKING:
    from penstock.app_services import AppServices

LONGEST_PAUSE = 60.0
"""Seconds after which an event loop that has not turned counts as stuck."""
TURNED = '["turned"]'
"""The key under which a child stores the moment when its event loop last turned, by this host's monotonic clock."""
FRESH = 5.0
"""Seconds for which the state of the queues is cached, however many collectors ask."""


class WorkerMonitor:
    """Serves the metrics of a worker. `children`: how many the supervisor has; 0: all is in one process."""

    def __init__(self, app: AppServices, host: str, port: int, children: int = 0) -> None:
        self.app = app
        self.metrics = Metrics(app.events)
        self._regions = [SharedNumbers() for _ in range(children)]
        self._ended: Mapping[str, float] = {}
        self._turned: float | None = None
        self._stopping = False
        self._queues: tuple[float, str] = (0.0, "")
        self._lock = threading.Lock()
        app.events.on(StopRequested, self._stop_requested)
        routes = {"/metrics": self._tell, "/livez": self._livez, "/readyz": self._readyz}
        self.server = MetricsServer(host, port, routes)

    @property
    def handles(self) -> list[int]:
        return self.server.handles

    def turned(self) -> None:
        """Note that the event loop of this process has turned."""
        self._turned = time.monotonic()

    def start(self) -> None:
        self.server.start()

    def rest(self) -> None:
        self.server.rest()

    def close(self) -> None:
        self.server.close()

    # children

    def begin_in_child(self, slot: int) -> Callable[[], None]:
        """In the child: count in the shared memory of this slot."""
        self.metrics.stop()
        self.metrics = counting = Metrics(self.app.events, self._regions[slot])
        return lambda: counting.put(TURNED, time.monotonic())

    def child_ended(self, slot: int) -> None:
        """Add the counts of a child that has ended to those of the supervisor, and clear its slot."""
        with self._lock:
            self._ended = add_up(self._ended, _counts(self._regions[slot]))
            self._regions[slot].clear()

    def numbers(self) -> Mapping[str, float]:
        """All numbers of this worker."""
        own = self.metrics.read()
        with self._lock:
            return add_up(own, self._ended, *map(_counts, self._regions))

    # answers

    def _tell(self) -> ProbeAnswer:
        return ProbeAnswer(200, expose(families(self.numbers())) + self._state_of_queues())

    def _state_of_queues(self) -> str:
        """The metrics of all queues, from the database; one metric says whether the database answered."""
        asked_at, text = self._queues
        if time.monotonic() - asked_at > FRESH:
            try:
                text = gauges(self.app.database.read(overview, self.app.settings.reap_after)) + _is_up(1)
            except Exception:
                text = _is_up(0)
            self._queues = (time.monotonic(), text)
        return text

    def _livez(self) -> ProbeAnswer:
        now = time.monotonic()
        stuck = [now - moment for moment in self._moments() if now - moment > LONGEST_PAUSE]
        if stuck:
            return ProbeAnswer(503, f"an event loop has not turned for {max(stuck):.0f} s\n")
        return ProbeAnswer(200, "ok\n")

    def _readyz(self) -> ProbeAnswer:
        if self._stopping:
            return ProbeAnswer(503, "stopping\n")
        if not self._works():
            return ProbeAnswer(503, "no process works yet\n")
        try:
            version.ensure(self.app.database, upgrade=False)
        except Exception as error:
            return ProbeAnswer(503, f"{Failure.of(error).type}: the database cannot be used\n")
        return ProbeAnswer(200, "ok\n")

    def _works(self) -> bool:
        return any(self._children()) if self._regions else self._turned is not None

    def _moments(self) -> list[float]:
        own = [] if self._turned is None else [self._turned]
        return own + [moment for moment in self._children() if moment is not None]

    def _children(self) -> list[float | None]:
        """The moment when the event loop of each child last turned; None: it has not begun."""
        with self._lock:
            return [region.read().get(TURNED) for region in self._regions]

    def _stop_requested(self, _: StopRequested) -> None:
        self._stopping = True


def _counts(region: SharedNumbers) -> Mapping[str, float]:
    return {key: value for key, value in region.read().items() if key != TURNED}


def _is_up(number: int) -> str:
    meaning = "1 if the database answered this worker."
    return expose([Family("penstock_database_up", "gauge", meaning, [("", (), number)])])
