"""Measures everything that matters on a GPU that the project has never seen, in stages of 8 minutes.

    python benchmarks/gpu_first_hour.py --stage 1 --out DIR      # then 2 to 8, in any order
    python benchmarks/gpu_first_hour.py --stage 5 --case lenet:16 --out DIR
    python benchmarks/gpu_first_hour.py --stage report --out DIR
    TENSORBOW_TEST_GPU=emulated python benchmarks/gpu_first_hour.py --stage 1 --size tiny --out DIR  # dry run

    1  probe, tests of the runtime, op kernels        5  one case beside PyTorch and JAX
    2  steps kernel by kernel, cuDNN's choices        6  the same bits every time; memory and race checkers
    3  how far replicas overlap                       7  several GPUs, or NCCL with two ranks on one
    4  the host's time; captured against fused

No stage needs another one. A stage looks at the clock between its parts and ends with what it has:
`stage_<n>.json`, replaced after every part, and `stage_<n>.log`. A part runs in a process of its own: one
that hangs is ended, one that crashes or has lost the GPU's context goes on in a new process behind the check
that did it. `report.md` says after every stage what passed, what failed, and what was measured.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
from collections.abc import Sequence
from pathlib import Path

BUDGET_S = 480.0  # of a stage
OUT = Path(__file__).resolve().parent / "results" / "gpu"


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    from first_hour.plan import STAGES
    from first_hour.sizes import SIZES

    made = argparse.ArgumentParser(
        prog="benchmarks/gpu_first_hour.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    stages = [*map(str, STAGES), "report"]
    made.add_argument("--stage", choices=stages, required=True, help="number of a stage, or report")
    made.add_argument("--out", type=Path, default=OUT, help="folder; default: benchmarks/results/gpu")
    made.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of the stage; default 480")
    made.add_argument("--size", choices=list(SIZES), default="full", help="tiny: for the emulated GPU")
    made.add_argument(
        "--case", help="of stage 5, as lenet:16; default: the first without a file in the folder"
    )
    made.add_argument("--only", help="runs only the parts whose name contains this, into files of their own")
    options = made.parse_args(words)
    if options.case is not None and options.stage != "5":
        made.error("--case: belongs to --stage 5")
    if not options.budget > 0:
        made.error(f"--budget: expected seconds above 0, got {options.budget:g}")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 if nothing failed."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # the checkout need not be installed
    words = sys.argv[1:] if words is None else words
    if words and words[0] == "--child":  # a part, started by `stages.in_a_process`
        from first_hour.stages import child

        faulthandler.enable()
        child(json.loads(words[1]))
        return 0
    options = arguments(words)
    from first_hour.plan import stage_of
    from first_hour.report import write_report
    from first_hour.stages import StageRun

    good = True
    if options.stage != "report":
        stage = stage_of(int(options.stage), options.size, options.out, options.case, options.only)
        good = StageRun(stage, options.out, options.budget, options.size).run()
    print(f"wrote {write_report(options.out)}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
