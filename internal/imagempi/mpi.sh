#!/bin/sh
# Functions for scripts that run in a VM, with any POSIX shell. slurmv image check and slurm-v-run --list-mpi begin with
# them.
has() { command -v "$1" >/dev/null 2>&1; }

first() { "$@" 2>/dev/null | head -n 1; }

# mpis prints the MPI libraries that are in PATH, a line each: what their programs ask for the other ranks (pmi, pmix, or
# pmi2, Slurm's libpmi2, if they are told where it is), and the name.
mpis() {
	if has mpichversion; then echo "pmi $(mpichversion | sed -n 's/^MPICH Version:[[:space:]]*/MPICH /p')"; fi
	if has mpiname; then echo "pmi $(first mpiname)"; fi
	if has ompi_info; then echo "pmix $(first ompi_info --version)"; fi
	if has impi_info; then echo "pmi2 $(first impi_info -v)"; fi
}

# pmi_files prints the libraries by which MPI libraries ask: libpmi.so.0, libpmi2.so.0, libpmix.so.2. They may also be
# beside an mpirun that is in PATH. In tests SLURMV_TEST_IMAGE is the directory of the image.
pmi_files() {
	root=${SLURMV_TEST_IMAGE-}
	mpirun=$(command -v mpirun) || mpirun=$root/usr/bin/mpirun
	for dir in "$root"/lib "$root"/lib64 "$root"/lib/* "$root"/usr/lib "$root"/usr/lib64 "$root"/usr/lib/* \
		"$root"/usr/local/lib "$root"/usr/local/lib64 "${mpirun%/*}"/../lib "${mpirun%/*}"/../lib64; do
		for file in "$dir"/libpmi.so.* "$dir"/libpmi2.so.* "$dir"/libpmix.so.*; do
			case ${file##*.so.} in *[!0-9]*) continue ;; esac
			if [ -e "$file" ]; then echo "$file"; fi
		done
	done
}

# pmi_libraries prints their names.
pmi_libraries() { pmi_files | sed 's,.*/,,' | sort -u; }
