"""Limits in a Django project, all in one file: gunicorn --chdir examples django_app:app, or daphne django_app:asgi.

With several workers (--workers 4) it needs a store for all of them: REDIS_URL=redis://localhost:6379.
"""

import os
from pathlib import Path

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from headgate.django import admission, exempt, rate_limit

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["headgate.django.RateLimitMiddleware"],
    HEADGATE={
        "STORE": os.environ.get("REDIS_URL", "memory://"),
        "RULES": Path(__file__).with_name("app_rules.yaml"),
        "IDENTIFY": lambda request: request.headers.get("x-user"),  # without it: the user signed in to Django
    },
)


@rate_limit("10/hour", per="user")
def search(_request: HttpRequest, words: str) -> JsonResponse:
    """Ten an hour for each user, whatever they search for."""
    return JsonResponse({"found": words, "worker": os.getpid()})


@rate_limit("100/hour", per="user", name="pages")
def report(request: HttpRequest) -> JsonResponse:
    """A hundred pages an hour: one is taken when the call comes, the rest once it is known how many there are."""
    pages = int(request.GET["pages"])
    admission(request).settle(pages)
    return JsonResponse({"pages": pages, "worker": os.getpid()})


@exempt
def health(_request: HttpRequest) -> JsonResponse:
    """Never limited."""
    return JsonResponse({"status": "fine"})


urlpatterns = [path("search/<words>", search), path("report", report), path("health", health)]
app = get_wsgi_application()
asgi = get_asgi_application()
