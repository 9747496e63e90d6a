"""A model without a table, which gives the dashboard its permissions and its entry in the admin."""

from __future__ import annotations

from django.db import models


class DashboardEntry(models.Model):
    """Stands for the dashboard among the models of the project."""

    class Meta:
        managed = False
        app_label = "penstock"
        verbose_name = "dashboard"
        verbose_name_plural = "Jobs and runs"
        default_permissions = ()
        permissions = [
            ("view_dashboard", "Can look at jobs and runs"),
            ("view_payloads", "Can see arguments, results and errors"),
            ("operate_dashboard", "Can cancel, retry and steer jobs, runs and schedules"),
            ("enqueue_work", "Can start jobs and runs with arguments of their own"),
        ]
