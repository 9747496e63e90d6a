"""values/option_types: the keyword arguments that type checkers accept are those that are read."""

from dataclasses import fields

import pytest

from penstock.pipelines.define.pipeline_options import EVENTS, READERS
from penstock.pipelines.define.step_options import _KNOWN, _OF_HANDLERS
from penstock.pipelines.pipeline import TRIGGER_OPTIONS
from penstock.reconcile import options as reconciler_options
from penstock.schedules import definition as schedules
from penstock.settings import Settings
from penstock.task_options import FOR_ALL_JOBS, KNOWN, STEP_ONLY
from penstock.values import option_types as keywords

READ = {
    keywords.SettingKeywords: {field.name for field in fields(Settings)} - {"database_url"},
    keywords.TaskKeywords: KNOWN,
    keywords.TaskOptionKeywords: KNOWN - set(FOR_ALL_JOBS) | {*STEP_ONLY},
    keywords.FlowKeywords: {*EVENTS, *READERS},
    keywords.PipelineKeywords: {*EVENTS, *READERS, "name"},
    keywords.PipelineOptionKeywords: {*TRIGGER_OPTIONS, *_KNOWN} - _OF_HANDLERS.keys(),
    keywords.ReconcilerKeywords: {field.name for field in fields(reconciler_options.Policy)}
    | reconciler_options.OTHERS,
    keywords.ScheduleKeywords: schedules.TIMING - {"cron"}
    | {*schedules.ARGUMENTS, "name"}
    | schedules.OPTIONS - {"at", *FOR_ALL_JOBS},
    keywords.ScheduleChanges: schedules.TIMING - {"paused"}
    | {*schedules.ARGUMENTS}
    | schedules.OPTIONS - {"at", *FOR_ALL_JOBS},
    keywords.NewScheduleKeywords: keywords.ScheduleKeywords.__annotations__.keys()
    | {"connection", "redefine"},
}


@pytest.mark.parametrize("declared", READ, ids=lambda declared: declared.__name__)
def test_names_are_those_that_are_read(declared: type) -> None:
    assert set(declared.__annotations__) == set(READ[declared])
