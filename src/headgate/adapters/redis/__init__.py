"""Counters in Redis or Valkey."""

from headgate.adapters.redis.address import ServerAddress
from headgate.adapters.redis.store import RedisStore

__all__ = ["RedisStore", "ServerAddress"]
