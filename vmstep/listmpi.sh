#!/bin/sh
# Prints which MPI libraries are in PATH, and how slurm-v-run starts their programs. slurm-v-run --list-mpi runs it
# in a VM, with any POSIX shell.
has() { command -v "$1" >/dev/null 2>&1; }

direct='slurm-v-run -n N PROGRAM'
pmix='slurm-v-run --mpi=pmix -n N PROGRAM'
own='slurm-v-run --launcher=ssh mpirun -n N PROGRAM'

list() {
	if has mpichversion; then echo "$(mpichversion | sed -n 's/^MPICH Version:[[:space:]]*/MPICH /p'): $direct"; fi
	if has mpiname; then echo "$(mpiname | head -n 1): $direct"; fi
	if has ompi_info; then echo "$(ompi_info --version | head -n 1): $pmix"; fi
	if has impi_info; then echo "$(impi_info -v | head -n 1): $own"; fi
}
found=$(list)
echo "${found:-no MPI library is in PATH; $direct starts programs built with MPICH, $pmix those built with Open MPI, $own those of others}"
