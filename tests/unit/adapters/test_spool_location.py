"""Which spool is whose."""

from __future__ import annotations

from pathlib import Path

from headgate.adapters.spool.location import spool_folder
from headgate.settings import Settings


def _name(**settings: str) -> str:
    changes: dict[str, object] = dict(settings)
    if "events_file" in settings:
        changes["events_file"] = Path(settings["events_file"])
    folder = spool_folder(Settings(data_dir=Path("data"), **changes))  # type: ignore[arg-type] # by name
    assert folder is not None
    assert folder.parent == Path("data/spool")
    return folder.name


def test_a_spool_is_its_databases() -> None:
    """With any user and password of the database, and whatever other sinks there are."""
    names = {
        _name(database_url="postgresql://ann:secret@db:5432/limits"),
        _name(database_url="postgres://ben@db:5432/limits?sslmode=require&password=x"),
        _name(database_url="postgresql://db:5432/limits", events_file="/log", kafka_brokers="k:9092"),
    }
    assert len(names) == 1
    assert names.pop().startswith("database-")


def test_other_sinks_have_other_spools() -> None:
    """Another database, be it on the same server, and without one other brokers, topics and files."""
    others = [
        _name(database_url="postgresql://db/limits"),
        _name(database_url="postgresql://db/others"),
        _name(database_url="postgresql:///limits?host=/run/one"),
        _name(database_url="postgresql:///limits?host=/run/two"),
        _name(database_url="embedded://"),
        _name(database_url="embedded:///limits"),
        _name(kafka_brokers="one:9092"),
        _name(kafka_brokers="two:9092"),
        _name(kafka_brokers="one:9092", kafka_topic="other"),
        _name(events_file="/one"),
        _name(events_file="/two"),
    ]
    assert len(set(others)) == len(others)
    assert _name(kafka_brokers="one:9092?sasl.password=x", events_file="/one") == _name(kafka_brokers="one:9092")
    assert spool_folder(Settings()) is None
