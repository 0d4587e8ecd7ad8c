"""What several processes report, in a folder that they share."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from headgate.adapters.process_samples import WorkerSamples, process_samples
from headgate.core.metrics import Sample

if TYPE_CHECKING:
    from pathlib import Path

COUNTED = Sample("headgate_decisions_total", 5, ("allowed", "false"))
STANDING = Sample("headgate_blocks", 3, ("2",))


def test_each_knows_what_the_others_have_shared(tmp_path: Path) -> None:
    """A process reads what the others shared last, and not its own."""
    one, two = WorkerSamples(tmp_path, "1"), WorkerSamples(tmp_path, "2")
    assert one.of_others() == []
    assert two.share([COUNTED, STANDING]) == [COUNTED, STANDING]
    assert one.of_others() == [COUNTED, STANDING]
    assert two.of_others() == []


def test_a_dead_process_leaves_its_counters_only(tmp_path: Path) -> None:
    """Of a process that has died the counters stay in the sums; how things stood with it does not."""
    code = (
        "import sys; from pathlib import Path; from headgate.adapters.process_samples import WorkerSamples;"
        "from headgate.core.metrics import Sample;"
        "WorkerSamples(Path(sys.argv[1]), '2').share("
        "[Sample('headgate_decisions_total', 5, ('allowed', 'false')), Sample('headgate_blocks', 3, ('2',))])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)  # noqa: S603 (our own code)
    one = WorkerSamples(tmp_path, "1")
    assert one.of_others() == [COUNTED]
    next_two = WorkerSamples(tmp_path, "2")
    assert next_two.share([COUNTED._replace(value=2)]) == [COUNTED._replace(value=7)]
    assert next_two.share([COUNTED._replace(value=3)]) == [COUNTED._replace(value=8)]
    assert one.of_others() == [COUNTED._replace(value=8)]


def test_a_folder_that_is_gone_or_damaged_is_no_trouble(tmp_path: Path) -> None:
    """While the service ends, or the disk is full, a process reports what it knows itself."""
    (tmp_path / "2.json").write_text('[1,[["headgate_bl')
    one = WorkerSamples(tmp_path, "1")
    assert one.of_others() == []
    gone = WorkerSamples(tmp_path / "gone", "1")
    assert gone.share([COUNTED]) == [COUNTED]
    assert gone.of_others() == []


def test_a_process_reports_what_the_system_knows() -> None:
    """Processor time, memory, open files and their bound, and what runs here."""
    samples = {sample.name: sample for sample in process_samples("3", 1_700_000_000_000_000)()}
    assert all(sample.labels[0] == "3" for sample in samples.values())
    assert samples["process_start_time_seconds"].value == 1_700_000_000
    assert samples["process_cpu_seconds_total"].value > 0
    assert samples["process_resident_memory_bytes"].value > 1_000_000
    descriptor = os.open("/dev/null", os.O_RDONLY)
    more = {sample.name: sample for sample in process_samples("3", 0)()}
    os.close(descriptor)
    assert more["process_open_fds"].value == samples["process_open_fds"].value + 1
    assert samples["process_max_fds"].value >= samples["process_open_fds"].value


def test_what_one_has_told_the_others_can_tell(tmp_path: Path) -> None:
    """The last text of any process is read by all, so that none tells an older one."""
    one, two = WorkerSamples(tmp_path, "1"), WorkerSamples(tmp_path, "2")
    assert one.kept() is None
    two.keep("first")
    assert one.kept() == one.kept() == "first"
    one.keep("second")
    assert one.kept() == two.kept() == "second"
    assert one.of_others() == []
