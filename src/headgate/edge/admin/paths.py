"""Names inside of paths: anything percent-encoded, a slash too."""

from typing import Annotated
from urllib.parse import unquote

from fastapi import Path
from pydantic import BeforeValidator
from starlette.convertors import Convertor, register_url_convertor

from headgate.edge.admin.models.shared import whole_number

_MOST: int = 2**63 - 1


class _Name(Convertor[str]):
    """One part of a path, as it was before it was percent-encoded; `frame.canonical` has looked that it can be read."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("part", _Name())

Name = Annotated[str, Path(min_length=1, max_length=255)]
Number = Annotated[int, BeforeValidator(whole_number), Path(ge=0, le=_MOST)]
