"""A project of Django REST framework whose only limit is a throttle; its store is at `REDIS_URL`."""

from __future__ import annotations

import os
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["headgate.django.RateLimitMiddleware"],
    HEADGATE={"STORE": os.environ["REDIS_URL"], "IDENTIFY": lambda request: request.META.get("HTTP_X_USER")},
    REST_FRAMEWORK={
        "UNAUTHENTICATED_USER": None,
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "DEFAULT_THROTTLE_RATES": {"search": "10/hour"},
    },
)
django.setup()

from rest_framework.response import Response  # noqa: E402 (Django's settings come first)
from rest_framework.views import APIView  # noqa: E402 (as above)

from headgate.django import exempt  # noqa: E402 (as above)
from headgate.rest_framework import RateLimitThrottle  # noqa: E402 (as above)


class Search(APIView):  # type: ignore[misc] # it has no types
    """Ten searches an hour for each user."""

    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "search"

    def get(self, _request: Any, number: int) -> Response:  # noqa: ANN401 (of the framework)
        """One search."""
        return Response({"number": number})


@exempt
def health(_request: HttpRequest) -> HttpResponse:
    """Whether the server answers."""
    return HttpResponse("ok")


urlpatterns = [path("search/<int:number>", Search.as_view()), path("health", health)]
app = get_wsgi_application()
