"""A real broker: Apache Kafka from Maven Central, one node in KRaft mode on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = "3.9.1"
_PATIENCE: Final = 120.0
# The shell ends the broker when its own input ends: when we close it, or when the test run dies, however it dies.
_GUARD: Final = 'log="$1"; shift; "$@" >"$log" 2>&1 & echo $!; read _; kill -9 $!; wait'
_CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qk"
_POM: Final = f"""
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headgate</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""


def _jars() -> Path:
    """The folder of Kafka's jars, in the user's cache; fetched the first time, by Maven."""
    folder = Path.home() / ".cache/headgate-tests" / f"kafka-{VERSION}"
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        pytest.skip("there is no Maven here (mvn), which fetches Apache Kafka")
    coming = folder.with_name(f"{folder.name}-{os.getpid()}")
    coming.mkdir(parents=True)
    pom = coming / "pom.xml"
    pom.write_text(_POM, encoding="utf-8")
    fetched = subprocess.run(  # noqa: S603 (what Maven fetches is checked by it)
        ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={coming}"],  # noqa: S607 (wherever it is)
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if fetched.returncode:
        shutil.rmtree(coming)
        pytest.skip(f"Maven cannot fetch Apache Kafka: {fetched.stdout[:200]}")
    coming.rename(folder)
    return folder


class Broker:
    """One broker with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        """Format the folder and start; skips the test where there is no Java or no Maven."""
        if shutil.which("java") is None:
            pytest.skip("there is no Java here, which Apache Kafka runs on")
        port, other = free_port(), free_port()
        self.servers = f"127.0.0.1:{port}"
        self._java = ["java", "-Xmx512m", "-cp", f"{_jars()}/*"]
        self._log = folder / "broker.log"
        self._settings = folder / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{other}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{other}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": folder / "data",
            "offsets.topic.replication.factor": 1,
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        subprocess.run(  # noqa: S603 (our own broker)
            [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", self._settings],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        self._guard: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._guard = subprocess.Popen(  # noqa: S603 (our own broker)
            ["/bin/sh", "-c", _GUARD, "sh", self._log, *self._java, "kafka.Kafka", self._settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())
        end = time.monotonic() + _PATIENCE
        while not self._answers():
            assert time.monotonic() < end, f"the broker did not start: {self._log.read_text()[-2000:]}"

    def _answers(self) -> bool:
        try:
            return bool(self._admin().list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def make_topic(self, name: str, settings: Mapping[str, str] | None = None) -> None:
        """A topic of four partitions."""
        topic = NewTopic(name, num_partitions=4, replication_factor=1, config=dict(settings or {}))
        admin = self._admin()  # kept until the answer is there
        admin.create_topics([topic])[name].result(_PATIENCE)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def freeze(self) -> None:
        """Stop its process; connections stay open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)
