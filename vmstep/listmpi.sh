#!/bin/sh
# Prints which MPI libraries are in PATH, and how slurm-v-run starts their programs. slurm-v-run --list-mpi runs it
# in a VM, after internal/imagempi/mpi.sh, with any POSIX shell.
direct='slurm-v-run -n N PROGRAM'
pmix='slurm-v-run --mpi=pmix -n N PROGRAM'
own='slurm-v-run --launcher=ssh mpirun -n N PROGRAM'

# Intel MPI opens Slurm's library if a variable names it, as Slurm's guide to MPI says. Images may have none.
by_pmi2() {
	library=$(pmi_files | sed -n '/libpmi2\.so/{p;q;}')
	if [ "$library" ]; then echo "I_MPI_PMI_LIBRARY=$library $direct"; else echo "$own"; fi
}

list() {
	mpis | while read -r asks name; do
		case $asks in
		pmi) echo "$name: $direct" ;;
		pmix) echo "$name: $pmix" ;;
		*) echo "$name: $(by_pmi2)" ;;
		esac
	done
}
found=$(list)
echo "${found:-no MPI library is in PATH; $direct starts programs built with MPICH, $pmix those built with Open MPI, $own those of others}"
