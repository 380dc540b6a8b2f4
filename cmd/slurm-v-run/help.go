package main

const help = `Usage: slurm-v-run [srun options] program [arguments]
       slurm-v-run --start

Run a program in the VMs of this Slurm job, as srun would on the bare nodes.

The first slurm-v-run of a job starts its VMs and waits until they are ready. Later
ones find the VMs there. The other options are srun's and mean the same: -n, --label,
--input, --output ... but some are refused, with the reason: --pty, --multi-prog, --bcast,
--container, --no-allocate, --het-group, --external-launcher. srun spreads tasks over
nodes; slurm-v-run spreads the tasks of a node over its VMs.

OPTIONS
=======

    --vm-distribution=block|cyclic   fill one VM after the other (block, the
                                     default), or deal the tasks out in turn
    --start                          only start the VMs; the next slurm-v-run
                                     waits for them. VMs that have failed or
                                     ended are started again
    --launcher=srun|ssh              who starts the tasks: srun (the default),
                                     or your own mpirun, which runs once, in
                                     the first VM, and reaches the other VMs by
                                     ssh
    --list-mpi                       list the MPI libraries of the image, and
                                     how each is started
    --mpi-shm=auto|on|off            let the MPI of a job with --ivshmem talk
                                     through shared memory between the VMs of a
                                     node: if it can (auto, the default), or
                                     else fail (on), or never (off)
    --no-wait                        if the job has IVShmem devices and all are
                                     claimed, fail instead of waiting
    --mpi=pmix                       the program finds its ranks by PMIx: Open MPI.
                                     SLURM_MPI_TYPE=pmix is the same
    --mpi=none                       the tasks are independent. Without this
                                     option a run fails if its MPI library does
                                     not contact Slurm's PMI, or if only some
                                     tasks call MPI_Init
    -Q, --quiet                      say nothing while the VMs start, while waiting
                                     for a device, or of what MPI does with it
    -h, --help                       show this text
    -V, --version                    show the version

EXIT STATUS
===========

    srun's: the highest of the tasks', 128 + N for signal N
    1   the VMs could not be started, or this is no job with VMs
    2   the command line cannot be run
    75  with --no-wait: every IVShmem device is claimed

IVSHMEM
=======

In a job with --ivshmem=N, N slurm-v-run can run at once, each with a device of its
own. The next one waits. Programs find the device of their run in these variables:

    SLURMV_IVSHMEM        the file to map, such as /dev/slurmv/ivshmem0
    SLURMV_IVSHMEM_SIZE   how many bytes the program may map; MPI may have the rest
    SLURMV_IVSHMEM_PEERS  the ranks that share it, on one node, such as 0-3,8

A run gets its device filled with zeros.

MPI takes 4.5 MiB for each rank of a node, and 2 MiB for all. --ivshmem=1:32M is enough for
6 ranks on a node, 128M for 28, 512M for 113; MPI windows (MPI_Win_allocate) come on top.
A run that may share memory is started with srun's --kill-on-bad-exit=1, as one with
--mpi=pmix: a rank that is killed on its node cannot tell the others. With --mpi-shm=off
srun does not get this option; --kill-on-bad-exit=0 of your own lets the other ranks live.

docs/mpi.md of Slurm-V says more: compilers, Intel MPI, an MPI that is not in the image,
what ends a run, what is fast.

EXAMPLES
========

    slurm-v-run -n 16 ./graph500                        with MPICH, or without MPI
    slurm-v-run --mpi=pmix -n 16 ./graph500             with Open MPI
    slurm-v-run --launcher=ssh mpirun -n 16 ./graph500  with another MPI (--list-mpi)

    slurm-v-run --start       VMs boot while the script prepares its data
    cp -r /archive/input .
    slurm-v-run ./app input

    slurm-v-run -n 8 ./graph500 &       two at once, with --ivshmem=2
    slurm-v-run -n 8 ./ft.B.8 &         each on a device of its own
    wait
`
