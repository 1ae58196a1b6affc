"""DiLoCo between two machines whose link is thin: its speed decides nothing but the time."""

import subprocess
import sys

import pytest

from tests.cluster_rig.mpi_jobs import mpirun
from tests.cluster_rig.two_machines import shape, two_machines

PROGRAM = """
import hashlib, sys
import tensorbow as tb
how = {"sync": "diloco", "tau": 8, "staleness": 1}
how["exchange_dtype"] = None if sys.argv[1] == "float32" else sys.argv[1]
with tb.fit("mlp", "digits", replicas=1, epochs=1, progress=False, **how) as run:
    digest = hashlib.sha256()
    for name, value in sorted(run.values.items()):
        digest.update(name.encode() + value.tobytes())
    if tb.worker_group().rank == 0:
        print("digest", run.result.steps, digest.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_thin_link_changes_no_bits_of_diloco_that_overlaps(tmp_path, monkeypatch, dtype):
    mpirun()
    monkeypatch.setenv("TENSORBOW_EXCHANGE", "mpi")  # the namespaces share memory, machines do not
    (tmp_path / "program.py").write_text(PROGRAM)
    said = []
    try:
        with two_machines(tmp_path) as machines:
            for megabits in (None, 20):
                shape(megabits, machines.far)
                words = [
                    sys.executable,
                    "-m",
                    "tensorbow",
                    "launch",
                    *machines.words,
                    tmp_path / "program.py",
                    dtype,
                ]
                done = subprocess.run(words, capture_output=True, text=True, timeout=240)
                assert done.returncode == 0, done.stderr
                said += [line for line in done.stdout.splitlines() if line.startswith("digest")]
    except PermissionError as error:
        pytest.skip(str(error))
    assert len(said) == 2
    assert said[0] == said[1]
    assert int(said[0].split()[1]) > 3 * 8
