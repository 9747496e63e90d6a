"""The dashboard's place in Django's admin: an entry that leads there."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse

from penstock.django.models import DashboardEntry


@admin.register(DashboardEntry)
class DashboardEntryAdmin(admin.ModelAdmin):
    """Shown to users who may look at the dashboard, if the project has its urls."""

    def has_module_permission(self, request: Any) -> bool:
        return self.has_view_permission(request) and _address() is not None

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(request.user.has_perm("penstock.view_dashboard"))

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        return redirect(_address() or "admin:index")


def _address() -> str | None:
    try:
        return str(reverse("penstock:dashboard"))
    except NoReverseMatch:
        return None
