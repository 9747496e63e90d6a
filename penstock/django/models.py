"""No table of Django's: a model that gives the dashboard its permissions and its place in the admin."""

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
            ("operate_dashboard", "Can cancel, retry and steer jobs and runs"),
        ]
