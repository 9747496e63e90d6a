"""The shop's pages, the admin, and Penstock's dashboard for staff."""

from django.contrib import admin
from django.urls import include, path
from shop import views

urlpatterns = [
    path("buy", views.buy),
    path("buy-async", views.buy_async),
    path("orders/<int:order_id>", views.order),
    path("jobs/", include("penstock.django.urls")),
    path("admin/", admin.site.urls),
]
