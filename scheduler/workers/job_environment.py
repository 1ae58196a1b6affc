"""Environment variables by which a job's starter tells its processes their numbers, and how many they are."""

from __future__ import annotations

import os

PMI_RANKS = "PMIX_RANK", "PMI_RANK"  # also set by others that start MPI, as Slurm
# By Open MPI, MVAPICH2, what speaks PMI, and Slurm, whose processes may be of no MPI.
RANKS = "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", *PMI_RANKS, "SLURM_PROCID"
SIZES = "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"  # set by mpirun and mpiexec
LOCAL_SIZES = "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"  # on a machine


def told(names: tuple[str, ...]) -> int | None:
    """The number that the first of these variables tells that is set; None without one, or for other text."""
    found = next((os.environ[name] for name in names if name in os.environ), "")
    return int(found) if found.isdecimal() else None
