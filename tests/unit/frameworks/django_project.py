"""The views and settings of a small Django project."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from headgate.django import admission, exempt, rate_limit

if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="not secret", USE_TZ=True)  # noqa: S106 (a test's)


@rate_limit("2/day", per="user")
def limited(request: HttpRequest, number: int) -> HttpResponse:
    """A view that settles its cost."""
    admission(request).settle(int(request.GET.get("cost", "1")))
    return HttpResponse(str(number))


@rate_limit("1/day", message="Enough.", status=420)
async def waiting(_request: HttpRequest) -> HttpResponse:
    """An asynchronous view."""
    return HttpResponse("waited")


@exempt
def free(_request: HttpRequest) -> HttpResponse:
    """An exempt view."""
    return HttpResponse("free")


def plain(_request: HttpRequest, **_parts: Any) -> HttpResponse:  # noqa: ANN401 (parts of the path)
    """A view without limits of its own."""
    return HttpResponse("plain")


def fails(_request: HttpRequest) -> HttpResponse:
    """A view that raises."""
    raise ZeroDivisionError


urlpatterns = [
    path("fails", fails),
    path("limited/<int:number>", limited),
    path("free", free),
    path("plain/<str:name>/", plain),
    path("in/", include([path("waiting", waiting)])),
]
