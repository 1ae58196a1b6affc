"""A killed worker: the job ends with a line that names it, and resumes with the bits of one undisturbed."""

import re
import sys

import pytest

from tests.cluster_rig.mpi_jobs import run_job

OPTIONS = {"epochs": 3, "staleness": 1, "checkpoint_rounds": 20}
WORDS = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
KILLED = f"""
import os, signal, sys
import tensorbow as tb
processes = tb.worker_group().all_gather(os.getpid())
class Kill(tb.Callback):
    def on_checkpoint(self, run, path):
        print("killing", processes[1], flush=True)
        os.kill(processes[1], signal.SIGKILL)
tb.fit("logreg", replicas=1, callbacks=[Kill()], progress=False, output=sys.argv[1], **{OPTIONS})
print("has trained on")
"""
RESUMED = f"""
import sys
from tensorbow.cli import main
for folder, *more in ((sys.argv[1], "--resume", "auto"), (sys.argv[2],)):
    try:
        main(["train", "logreg", "--replicas-per-gpu", "1", *{WORDS}, "--output", folder, *more])
    except SystemExit as end:
        assert end.code == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sends signals as Linux does")
def test_a_killed_worker_ends_the_job_and_resuming_keeps_the_bits(tmp_path):
    for name, text in (("killed.py", KILLED), ("resumed.py", RESUMED)):
        (tmp_path / name).write_text(text)
    kernels = {"TENSORBOW_CPU": "reference"}
    job = run_job(2, tmp_path / "killed.py", tmp_path / "run", environment=kernels)
    assert job.returncode != 0
    (line,) = re.findall(r"^tensorbow: .*", job.stderr, re.MULTILINE)
    (process,) = re.findall(r"killing (\d+)", job.stdout)
    named = rf"tensorbow: worker 1 \(\S+, process {process}\) was killed or has crashed at step [1-9]\d*"
    assert re.match(named, line), job.stderr
    assert "has trained on" not in job.stdout
    assert not (tmp_path / "run" / "model.safetensors").exists()
    job = run_job(2, tmp_path / "resumed.py", tmp_path / "run", tmp_path / "whole", environment=kernels)
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("resumed from") == 1
    files = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("run", "whole")]
    assert files[0] == files[1]
