"""A Lambda authorizer for Amazon API Gateway that lets headgate decide. Python 3.11 or newer, nothing to install.

It takes events of both kinds of APIs: of REST APIs (type REQUEST, answered with a policy) and of HTTP APIs (payload
format 2.0 with simple responses). Switch the authorizer's cache off (TTL 0): a cached answer counts nothing.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
from typing import Any
from urllib.parse import urlsplit

_PLAIN, _TLS = http.client.HTTPConnection, http.client.HTTPSConnection
_OK, _REFUSED = 200, (403, 429)


def handler(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """Ask headgate about one request, and answer as API Gateway expects it."""
    del context
    checked = _checked(event)
    told = {name: checked[name] for name in ("limit", "remaining", "retry_after", "policy") if checked.get(name)}
    # API Gateway takes texts, numbers and booleans only.
    shown = {name.replace("_", ""): value for name, value in told.items()}
    if "routeArn" in event:
        return {"isAuthorized": checked["allowed"], "context": shown}
    effect = "Allow" if checked["allowed"] else "Deny"
    statement = {"Action": "execute-api:Invoke", "Effect": effect, "Resource": event["methodArn"]}
    return {
        "principalId": _source(event) or "unknown",
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "context": shown,
    }


def _checked(event: dict[str, Any]) -> dict[str, Any]:
    """The verdict; while headgate is unavailable, what HEADGATE_FAIL_OPEN says ("yes" unless told)."""
    try:
        status, verdict = _ask(_request_of(event))
    except (OSError, http.client.HTTPException, ValueError) as error:
        logging.getLogger("headgate").warning("headgate is unavailable: %s", error)
        return {"allowed": os.environ.get("HEADGATE_FAIL_OPEN", "yes") == "yes"}
    if status != _OK and status not in _REFUSED:
        logging.getLogger("headgate").warning("headgate has answered %d", status)
        return {"allowed": os.environ.get("HEADGATE_FAIL_OPEN", "yes") == "yes"}
    return {**verdict, "allowed": status == _OK}


def _request_of(event: dict[str, Any]) -> dict[str, Any]:
    about = event.get("requestContext") or {}
    http_api = about.get("http") or {}
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    stated = {
        "method": http_api.get("method") or event.get("httpMethod"),
        "path": event.get("rawPath") or event.get("path"),
        "ip": _source(event),
        "api_key": headers.get("x-api-key"),
    }
    return {name: value for name, value in stated.items() if value}


def _source(event: dict[str, Any]) -> str | None:
    """The caller's address, as API Gateway has seen it."""
    about = event.get("requestContext") or {}
    source: str | None = (about.get("http") or about.get("identity") or {}).get("sourceIp")
    return source


def _ask(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    address = urlsplit(os.environ["HEADGATE_URL"])
    seconds = float(os.environ.get("HEADGATE_TIMEOUT_SECONDS", "0.5"))
    connection = (_TLS if address.scheme == "https" else _PLAIN)(address.netloc, timeout=seconds)
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("HEADGATE_SERVICE_TOKEN"):
        headers["X-Headgate-Token"] = token
    try:
        connection.request("POST", "/v1/check", json.dumps(request), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
