"""Addresses: the admin here, the protocol and the pages in their own modules."""

from django.contrib import admin
from django.urls import include, path

from bureau.a2a.reference import openapi, reference
from bureau.callbacks import callback

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", reference, name="reference"),
    path("api/openapi.json", openapi, name="openapi"),
    path("callbacks/<uuid:leg_id>/", callback, name="callback"),
    path("", include("bureau.a2a.urls")),
    path("", include("bureau.dashboard.urls")),
]
