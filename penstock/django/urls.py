"""The dashboard's urls for staff: `path("jobs/", include("penstock.django.urls"))`. Needs `penstock[dashboard]`."""

from __future__ import annotations

from django.urls import path

from penstock.django.views import dashboard

app_name = "penstock"
urlpatterns = [
    path("", dashboard, name="dashboard"),
    path("<path:path>", dashboard, name="page"),
]
