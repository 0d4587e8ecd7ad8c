"""The applications of `bench.route_apps` in Django and Django REST framework."""

from __future__ import annotations

from typing import Any

ITEMS = "items/<item>"


def django_app(framework: str, name: str, url: str, amount: int) -> Any:  # noqa: ANN401 (a WSGI application)
    """The view of an item, limited for each address; the peers count in Django's cache.

    A throttle needs the middleware only for headers, so that it is without it where there are none.
    """
    from django.conf import settings  # noqa: PLC0415 (each process has one framework)

    has_middleware = name == "headgate" or (name == "headgate_bare" and framework == "django")
    cache = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "bench"}
    if url != "memory":
        cache = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=["headgate.django.RateLimitMiddleware"] if has_middleware else [],
        CACHES={"default": cache},
        HEADGATE={
            "STORE": "memory://" if url == "memory" else url,
            "HEADERS": "none" if name.endswith("bare") else "all",
        },
        REST_FRAMEWORK={
            "UNAUTHENTICATED_USER": None,
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
            "DEFAULT_THROTTLE_RATES": {"items": f"{amount}/day"},
        },
    )
    import django  # noqa: PLC0415 (after its settings)
    from django.core.wsgi import get_wsgi_application  # noqa: PLC0415 (after its settings)

    django.setup()
    urlpatterns.append(_pattern((_rest_view if framework == "drf" else _view)(name, amount)))
    return get_wsgi_application()


def forget() -> None:
    """Empty the cache in which the peers count."""
    from django.core.cache import cache  # noqa: PLC0415 (after its settings)

    cache.clear()


urlpatterns: list[Any] = []


def _pattern(view: Any) -> Any:  # noqa: ANN401 (of Django)
    from django.urls import path  # noqa: PLC0415 (after its settings)

    return path(ITEMS, view)


def _view(name: str, amount: int) -> Any:  # noqa: ANN401 (of Django)
    from django.http import HttpRequest, JsonResponse  # noqa: PLC0415 (after its settings)

    def view(_request: HttpRequest, item: str) -> JsonResponse:
        return JsonResponse({"item": item})

    if name.startswith("headgate"):
        from headgate.django import rate_limit  # noqa: PLC0415 (ours)

        return rate_limit(f"{amount}/day", per="ip")(view)
    if name == "django_ratelimit":
        from django_ratelimit.decorators import ratelimit  # noqa: PLC0415 (a peer)

        return ratelimit(key="ip", rate=f"{amount}/d")(view)
    return view


def _rest_view(name: str, amount: int) -> Any:  # noqa: ANN401 (of the framework)
    from rest_framework.response import Response  # noqa: PLC0415 (after its settings)
    from rest_framework.throttling import ScopedRateThrottle  # noqa: PLC0415 (after its settings)
    from rest_framework.views import APIView  # noqa: PLC0415 (after its settings)

    throttles: list[Any] = []
    if name.startswith("headgate"):
        from headgate.rest_framework import RateLimitThrottle  # noqa: PLC0415 (ours)

        class Ours(RateLimitThrottle):
            limits = f"{amount}/day"
            per = "ip"

        throttles = [Ours]
    elif name == "rest_framework":
        throttles = [ScopedRateThrottle]

    class View(APIView):
        throttle_classes = throttles
        throttle_scope = "items"

        def get(self, _request: Any, item: str) -> Response:  # noqa: ANN401 (of the framework)
            return Response({"item": item})

    return View.as_view()
