"""Envoy's rate-limit messages by protobuf's own library, from the numbers in Envoy's proto files."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {
    "string": 9,
    "message": 11,
    "bytes": 12,
    "uint32": 13,
    "enum": 5,
    "uint64": 4,
    "bool": 8,
    "int64": 3,
    "int32": 5,
}
_MESSAGES = {
    "Entry": "string key 1, string value 2",
    "Override": "uint32 requests_per_unit 1, enum unit 2",
    "UInt64Value": "uint64 value 1",
    "Descriptor": "Entry* entries 1, Override limit 2, UInt64Value hits_addend 3, bool is_negative_hits 4",
    "RateLimitRequest": "string domain 1, Descriptor* descriptors 2, uint32 hits_addend 3",
    "RateLimit": "string name 3, uint32 requests_per_unit 1, enum unit 2",
    "Duration": "int64 seconds 1, int32 nanos 2",
    "Status": "enum code 1, RateLimit current_limit 2, uint32 limit_remaining 3, Duration duration_until_reset 4",
    "RateLimitResponse": "enum overall_code 1, Status* statuses 2, Entry* response_headers_to_add 3, bytes raw_body 5",
    "HealthCheckRequest": "string service 1",
    "HealthCheckResponse": "enum status 1",
}


def _classes(messages: dict[str, str]) -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="envoy.proto", package="e", syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            kind, field_name, number = field.split()
            plain = kind.rstrip("*")
            made = message.field.add(name=field_name, number=int(number))
            made.label = made.LABEL_REPEATED if kind.endswith("*") else made.LABEL_OPTIONAL
            made.type = _TYPES.get(plain, _TYPES["message"])  # type: ignore[assignment] # protobuf's numbers
            if plain not in _TYPES:
                made.type_name = f".e.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"e.{name}")) for name in messages}


MESSAGES = _classes(_MESSAGES)
WITH_ANY_VALUES = _classes(_MESSAGES | {"Entry": "string key 1, bytes value 2"})
"""The same with values of entries that need not be UTF-8."""
OK, OVER_LIMIT = 1, 2


def question(domain: str, *descriptors: dict[str, Any], hits: int = 0) -> bytes:
    """A RateLimitRequest; a descriptor has its `entries` as a mapping, and the other fields by name."""
    message = MESSAGES["RateLimitRequest"](domain=domain, hits_addend=hits)
    for descriptor in descriptors:
        rest = {name: value for name, value in descriptor.items() if name != "entries"}
        entries = [{"key": key, "value": value} for key, value in descriptor["entries"].items()]
        message.descriptors.add(entries=entries, **rest)
    made: bytes = message.SerializeToString()
    return made


def answer(message: bytes) -> Any:  # noqa: ANN401 (a class that was made a moment ago)
    return MESSAGES["RateLimitResponse"].FromString(message)
