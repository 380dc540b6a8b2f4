package pmix

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/internal/pmix/pmixtest"
)

// A node has VMs that share memory, each with one rank of Open MPI.
type node struct {
	library, device string
	option          string // another variable, or ""
}

// programs returns what prepares the programs of a VM. Each has the process number 1 in a namespace of its
// own, and a descriptor of PMI, as the guest agent leaves it.
func (n node) programs(t *testing.T, vm int) func(*exec.Cmd, *os.File) {
	return func(c *exec.Cmd, pmi *os.File) {
		var socket syscall.Stat_t
		if err := syscall.Fstat(int(pmi.Fd()), &socket); err != nil {
			t.Error(err)
		}
		c.ExtraFiles = []*os.File{nil, pmi}
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
		// Open MPI 4 looks for a PMIx server only if Slurm has started it.
		c.Env = append(c.Env, "SLURM_JOBID=7", "SLURM_JOB_ID=7", "SLURM_STEPID=1", "SLURM_STEP_ID=1", "SLURM_NODELIST=vm[0-1]", "SLURM_NNODES=2")
		c.Env = append(c.Env, "LD_PRELOAD="+n.library, "SLURMV_MPI_RANKS=0,1", "SLURMV_PMI_FD=4",
			fmt.Sprint("SLURMV_PMI_SOCKET=", socket.Ino),
			fmt.Sprintf("SLURMV_MPI_SHM=%s:5e1f5e1f-0000-4000-8000-000000000001:%d:1048576", n.device, vm),
			"OMPI_MCA_btl_vader_single_copy_mechanism=none", "OMPI_MCA_smsc=^cma,knem,xpmem", "OMPI_MCA_btl_sm_segment_size=4194304",
			"OMPI_MCA_btl_tcp_if_include=lo") // the machine may have no other interface
		if n.option != "" {
			c.Env = append(c.Env, n.option)
		}
	}
}

// newNode builds the library as the product has it, and exchange.c with Open MPI.
func newNode(t *testing.T) (n node, program string) {
	t.Helper()
	dir := filetest.PassableDir(t)
	sources, _ := filepath.Glob("../../ivshmem/mpi/*.[chm]*")
	n = node{library: filetest.Make(t, "../..", dir, "libslurmv-mpi.so", sources...), device: filetest.Device(t, 32<<20)}
	program = filepath.Join(dir, "exchange")
	const exchange = "../../test/testdata/exchange.c"
	filetest.Build(t, []string{exchange}, []string{"mpicc.openmpi", "-O2", "-o", program, exchange})
	return n, program
}

// Open MPI finds its neighbours in other VMs, and talks to them through the memory that the VMs share. The
// relay hears of it. A rank that is told of no such memory, or cannot open it, sees those of its VM.
func TestOpenMPIThroughSharedMemory(t *testing.T) {
	server, _ := pmixtest.Build(t, "../..")
	const ready, talks = "cmd=slurmv-shm ready=1", "cmd=slurmv-shm peer=Open_MPI"
	for name, tt := range map[string]struct {
		words      []string // for the program
		option     string
		neighbours int
		hears      []string // of each rank
	}{
		"through memory":              {nil, "", 2, []string{pmixtest.Joins, pmixtest.Leaves, talks, ready}},
		"by the user's own transport": {nil, "OMPI_MCA_btl=tcp,self", 2, []string{pmixtest.Joins, pmixtest.Leaves, ready}},
		"without memory":              {[]string{"messages"}, "SLURMV_MPI_SHM=", 1, []string{pmixtest.Joins, pmixtest.Leaves}},
		"without the device":          {[]string{"messages"}, "SLURMV_MPI_SHM=/nowhere:5e1f5e1f:0:0", 1, []string{pmixtest.Joins, pmixtest.Leaves}},
	} {
		t.Run(name, func(t *testing.T) {
			n, program := newNode(t)
			n.option = tt.option
			s := &pmixtest.Slurm{Ranks: 2, Mapping: "(vector,(0,2,1))"}
			text, codes := n.run(t, s, server, append([]string{program}, tt.words...)...)
			want := fmt.Sprintf("2 ranks, %d of them neighbours, 0 wrong\n", tt.neighbours)
			if !slices.Equal(codes, []int{0, 0}) || !strings.Contains(text, want) {
				t.Errorf("%v and\n%s\nwant %s", codes, text, want)
			}
			if heard := s.Heard(); !slices.Equal(heard, ofTwo(tt.hears)) {
				t.Errorf("the relays heard %q, want from each rank %q", heard, tt.hears)
			}
		})
	}
}

// patience bounds how long two ranks may take, also on a busy machine. It is less than the tests of mutants have.
const patience = 2 * time.Minute

// run runs a rank in each of two VMs.
func (n node) run(t *testing.T, s *pmixtest.Slurm, server string, words ...string) (string, []int) {
	t.Helper()
	out := outputFile(t)
	var ended []<-chan int
	for rank := range 2 {
		v := startVM(t, fmt.Sprint("vm", rank), server, out)
		v.prepare = n.programs(t, rank)
		ended = append(ended, v.come(t, s, rank, out, words...))
	}
	var codes []int
	for _, code := range ended {
		select {
		case c := <-code:
			codes = append(codes, c)
		case <-time.After(patience):
			t.Fatalf("the ranks do not end; they have said\n%s", written(t, out))
		}
	}
	return written(t, out), codes
}

// ofTwo is what two ranks have said that say the same.
func ofTwo(lines []string) (all []string) {
	for _, line := range lines {
		all = append(all, "0: "+line, "1: "+line)
	}
	return slices.Sorted(slices.Values(all))
}
