#!/bin/bash
# A job of bench/mpi, which gives the VM options. Each part begins with a line "== LIBRARY: WAY".
#
# usage: job.sh between|within
#SBATCH --nodes=1 --ntasks=2 --time=60
set -e

part() {
	echo "== $1"
	shift
	"$@"
}

mpicc.mpich -O2 -o mpich mpi-pingpong.c
mpicc.openmpi -O2 -o openmpi mpi-pingpong.c
mpich=(slurm-v-run -Q -n 2) openmpi=(slurm-v-run -Q -n 2 --mpi=pmix)
case $1 in
between)
	part 'MPICH: shared memory' "${mpich[@]}" --mpi-shm=on ./mpich
	part 'MPICH: TCP' "${mpich[@]}" --mpi-shm=off ./mpich
	part 'Open MPI: shared memory' "${openmpi[@]}" --mpi-shm=on ./openmpi
	part 'Open MPI: TCP' "${openmpi[@]}" --mpi-shm=off ./openmpi
	;;
within)
	part 'MPICH: one VM' "${mpich[@]}" ./mpich
	part 'Open MPI: one VM' "${openmpi[@]}" ./openmpi
	part 'MPICH: no VM' srun --overlap -n 2 --mpi=pmi2 ./mpich
	part 'Open MPI: no VM' mpirun.openmpi --oversubscribe --mca plm isolated -np 2 ./openmpi
	;;
esac
