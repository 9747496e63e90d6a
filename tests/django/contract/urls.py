"""The admin and the dashboard."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("jobs/", include("penstock.django.urls")), path("admin/", admin.site.urls)]
