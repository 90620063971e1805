"""What it costs a host to be looked at."""

import os
from pathlib import Path

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.console.program import write_program
from tests.hosting.console.serving import ROLE, ROOM, configure, variant, wait_in_service
from tests.hosting.console.test_host_console import read
from tests.support.host import HostProcess, start_host

ENDPOINTS = 10


def cpu_s(pid: int) -> float:
    """The processor time that a process has used (man 5 proc_pid_stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def minute(host: HostProcess, path: str) -> float:
    """Processor time of the host for 60 requests."""
    before = cpu_s(host.process.pid)
    for _ in range(60):
        assert read(host, path)[0] == 200
    return cpu_s(host.process.pid) - before


def test_sixty_updates_a_minute_cost_less_than_a_hundredth_of_a_core(tmp_path: Path) -> None:
    image = write_program(tmp_path)
    try:
        with start_host(tmp_path / "host", "--describe-hold=1", ROOM) as host:
            sagemaker = host.client("sagemaker")
            sagemaker.create_model(
                ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": str(image)}
            )
            configure(host, "c", variant("A", "m"))
            names = [f"e-{number}" for number in range(ENDPOINTS)]
            for name in names:
                sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="c")
            for name in names:
                wait_in_service(host, name)
            assert len(read(host, "/console/snapshot")[1]["instances"]) == ENDPOINTS
            cost = min(minute(host, "/console/snapshot") for _ in range(3))
    finally:
        end_marked(tmp_path / "host", 0.0)
    assert cost < 0.6, f"a minute's snapshots of {ENDPOINTS} endpoints took {cost:.3f} s"
