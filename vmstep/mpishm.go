package vmstep

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/environ"
)

// How a run's MPI uses the memory that the VMs of a node share.
const (
	MPISharedAuto = "auto" // if it can
	MPISharedOn   = "on"   // or the run fails
	MPISharedOff  = "off"
)

// What MPI takes of a device: UCX's posix transport has 1.1 MiB for each rank, and as much three times more for messages that
// the rank does not wait for yet; Open MPI's own transport has 4 MiB; MPICH and our directory have less than 2 MiB for all.
// Windows (MPI_Win_allocate) come on top: the program knows how large they are.
const (
	mpiBytesPerRank = 4608 << 10
	mpiBytes        = 2 << 20
)

// An MPIMemory is the memory that MPI may have for the ranks of one node.
type MPIMemory struct {
	Job   string // job, node and claim: what no other run's memory has in common
	Claim int    // device
	Size  int64  // bytes of the device
	Ranks int    // the most that a node has
	VM    int    // number of the rank's VM in the job

	Neighbours []int // the ranks of the node, for a program that asks PMIx for them; else nil
}

// ForPrograms is how many bytes at the device's beginning are left for programs that use it
// themselves, in whole pages; negative if MPI needs more than the device has.
func (m MPIMemory) ForPrograms() int64 {
	return (m.Size - m.need()) &^ 4095
}

// need is how many bytes MPI takes.
func (m MPIMemory) need() int64 { return int64(m.Ranks)*mpiBytesPerRank + mpiBytes }

// Check returns an error that says what to change if MPI cannot have the memory, since the device is too small, or the
// environment lets UCX use what works only in one VM.
func (m MPIMemory) Check(env []string) error {
	if m.ForPrograms() >= 0 {
		return checkUCX(env)
	}
	size := int64(1 << 20) // devices have powers of two
	for size < m.need() {
		size *= 2
	}
	return fmt.Errorf("the IVShmem device has %d MiB, and MPI needs more for %d ranks on a node: submit the job with --ivshmem=1:%dM, or more if the program makes MPI windows",
		m.Size>>20, m.Ranks, size>>20)
}

// Env returns what a program gets for it, after the variables that it has already: those of
// UCX and Open MPI that the user has set stay.
func (m MPIMemory) Env(env []string) []string {
	added := []string{
		fmt.Sprintf("SLURMV_MPI_SHM=/dev/slurmv/ivshmem%d:%s:%d:%d", m.Claim, m.machine(), m.VM, m.ForPrograms()),
		preload(env),
	}
	if m.Neighbours != nil {
		added = append(added, "SLURMV_MPI_RANKS="+commas(m.Neighbours))
	}
	for _, entry := range slices.Concat(ucx, openMPI) {
		name, _, _ := strings.Cut(entry, "=")
		if !environ.Has(env, name) {
			added = append(added, entry)
		}
	}
	return added
}

// machine is the boot id that the VMs of the node have in common for this run's MPI.
func (m MPIMemory) machine() string {
	sum := sha256.Sum256([]byte(m.Job))
	return uuid.UUID(sum[:16]).String()
}

// preload puts the library before those that the user preloads.
func preload(env []string) string {
	users := ""
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "LD_PRELOAD="); ok && value != "" {
			users = ":" + value
		}
	}
	return "LD_PRELOAD=" + guest.MPIDir + "/" + guest.MPILibrary + users
}

// commas lists ranks as PMIx does.
func commas(ranks []int) string {
	texts := make([]string, len(ranks))
	for i, rank := range ranks {
		texts[i] = strconv.Itoa(rank)
	}
	return strings.Join(texts, ",")
}

// openMPI are the variables by which Open MPI does not read the memory of other processes, which
// works only between processes of one kernel: those of its versions 4 and 5. Version 5 makes a segment of 16 MiB for each
// rank, if it is not told to make one of 4 MiB, as version 4 does. The component sm of sharedfp keeps the shared position of a
// file (MPI_File_write_shared) in the session directory, which each VM has for itself, if all ranks are on one node.
var openMPI = []string{
	"OMPI_MCA_btl_sm_segment_size=4194304",
	"OMPI_MCA_btl_vader_single_copy_mechanism=none",
	"OMPI_MCA_smsc=^cma,knem,xpmem",
	"OMPI_MCA_sharedfp=^sm",
}

// ucx are the variables by which UCX does not try what works only between processes of one
// kernel, and prefers shared memory for messages of all sizes.
var ucx = []string{
	"UCX_TLS=^sysv",                // System V's segments
	"UCX_POSIX_USE_PROC_LINK=n",    // opening a file by /proc/PID/fd
	"UCX_KEEPALIVE_INTERVAL=inf",   // looking for a process by its number
	"UCX_MAX_EAGER_RAILS=1",        // a second, slower transport for half of the bytes
	"UCX_MAX_RNDV_RAILS=1",         //
	"UCX_POSIX_SHM_MIN_SIZE=0",     // memory that a device must have; 16 MiB from UCX 1.16 on
	"UCX_POSIX_RX_BUFS_GROW=128",   // memory for so many messages is taken at once, else for 512; without room, UCX waits for ever
	"UCX_TCP_PUT_ENABLE=n",         // else large messages go by TCP
	"UCX_WARN_UNUSED_ENV_VARS=n",   // a UCX that does not know one of these
	"MPIR_CVAR_CH4_CMA_ENABLE=0",   // MPICH from 4.3 on
	"MPIR_CVAR_CH4_XPMEM_ENABLE=0", //
}
