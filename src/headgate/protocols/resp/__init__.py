"""RESP, the protocol of Redis and Valkey: commands to bytes, bytes to replies, without I/O."""

from headgate.protocols.resp.replies import NO_REPLY, ProtocolError, ReplyError, ReplyReader, encode_command
from headgate.protocols.resp.requests import RequestReader

__all__ = ["NO_REPLY", "ProtocolError", "ReplyError", "ReplyReader", "RequestReader", "encode_command"]
