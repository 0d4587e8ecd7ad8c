"""The processes that decide by this database."""

from fastapi import APIRouter

from headgate.controlplane.processes import ProcessRecord
from headgate.edge.admin.gate import Gate, Parts
from headgate.edge.admin.models.processes import ProcessPage
from headgate.edge.admin.pages import Page

router = APIRouter(route_class=Gate, tags=["processes"])


@router.get("/v1/processes", response_model=ProcessPage)
async def list_processes(parts: Parts) -> Page[ProcessRecord]:
    """Processes that have reported in the last 10 seconds, and what they run on. There is one page."""
    return Page(await parts.processes.list(), None)
