"""Connects Penstock to a Django project when its apps are loaded."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks as django_checks
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from penstock.django.application import the_app
from penstock.django.checks import check_database, check_project


class PenstockConfig(AppConfig):
    """Discovers tasks, creates the tables with `migrate`, and takes part in Django's checks."""

    name = "penstock.django"
    label = "penstock"
    verbose_name = "Penstock"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        autodiscover_modules("tasks")
        django_checks.register(check_project)
        django_checks.register(check_database, django_checks.Tags.database)
        post_migrate.connect(follow_migrate, sender=self, dispatch_uid="penstock")


def follow_migrate(using: str, **said: Any) -> None:
    """After `migrate`: upgrade Penstock's tables. After `flush`, which has no plan: empty them, like all others."""
    app = the_app()
    if using == app.alias:
        app.migrate()
        if "plan" not in said:
            app.forget_all_work()
        else:
            app.database.close()  # PostgreSQL copies no database that has connections: `test --parallel` does that next
