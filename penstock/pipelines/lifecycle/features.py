"""The features of runs that a plan needs (see `advance.state.RunFeatures`): the engine hands this module down."""

from penstock.pipelines.lifecycle.lineage import keeps_failure
from penstock.pipelines.lifecycle.signals import start_waiting

__all__ = ["keeps_failure", "start_waiting"]
