"""The app of the benchmarks for `penstock worker`."""

import json
import os

from bench.marks import Marks
from bench.systems.penstock import PenstockSystem

system = PenstockSystem(
    os.environ["BENCH_URL"], Marks(os.environ["BENCH_MARKS"]), json.loads(os.environ["BENCH_OPTIONS"])
)
system.declare()
app = system.app
