"""The guide's table of ports: Open MPI has these options, with these defaults, and the watch has its own."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from scheduler.workers import watch_server
from tensorbow.cli.launch import launch
from tests.cluster_rig.mpi_jobs import MPICH, ROOT, mpirun

GUIDE = (ROOT / "docs" / "how_to" / "several_machines.md").read_text()

of_open_mpi = pytest.mark.skipif(MPICH in os.environ, reason="the table is of Open MPI")


def row(connection):
    """Ports by default of a connection, and what bounds them."""
    (found,) = re.findall(rf"^\| {connection}[^|]*\|([^|]*)\|(.*)\|$", GUIDE, re.MULTILINE)
    return found[0].strip(), found[1].strip()


def told_by(program, *words):
    command = [str(Path(mpirun()).parent / program), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@of_open_mpi
def test_the_ports_of_mpi():
    ports, bounds = row("MPI, among")
    found = told_by("ompi_info", "--param", "btl", "tcp", "--level", "9", "--parsable")
    given = {name: int(value) for name, value in re.findall(r"--mca (\w+) (\d+)", bounds)}
    defaults = {name: int(re.findall(rf":{name}:value:(\d+)", found)[0]) for name in given}
    least, count = defaults["btl_tcp_port_min_v4"], defaults["btl_tcp_port_range_v4"]
    assert ports == f"{least} to {least + count - 1}"
    assert f"the range stays {count:,}" in bounds
    first, number = given["btl_tcp_port_min_v4"], given["btl_tcp_port_range_v4"]
    assert f"ports {first} to {first + number - 1}" in bounds
    words = re.findall(r"--mpi-option=--mca --mpi-option=(\w+) --mpi-option=(\d+)", GUIDE)
    assert {name: int(value) for name, value in words} == given


@of_open_mpi
def test_the_ports_of_its_helpers():
    ports, bounds = row("MPI's helpers")
    (name,) = re.findall(r"--prtemca (\w+) \d+-\d+", bounds)
    default = re.findall(rf'"{name}" \(current value: "(.*?)"', told_by("prte_info", "--all"))
    assert (ports, default) == ("any", [""])


def test_the_port_of_the_watch(monkeypatch):
    ports, bounds = row("watch, to one")
    option, port = re.findall(r"(--watch-port) (\d+)", bounds)[0]
    variable, value = re.findall(r"(TENSORBOW\w+)=(\d+)", bounds)[0]
    (parameter,) = [each for each in launch.params if option in each.opts]
    assert (ports, parameter.default, watch_server.own_port()) == ("any", 0, 0)
    monkeypatch.setenv(variable, value)
    assert watch_server.own_port() == int(port)
