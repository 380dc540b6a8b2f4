package workload

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Finding is what one rank has found out about the place where it runs.
type Finding struct {
	Rank     int      `json:"rank"`
	VM       string   `json:"vm"` // "" on a bare node
	UID      int      `json:"uid"`
	Kernel   string   `json:"kernel"`
	File     string   `json:"file,omitempty"`    // content of the file that the script has written beside the program
	Topology Topology `json:"topology"`          // of the place's CPUs
	VFs      int      `json:"vfs"`               // network interfaces that are virtual functions of the job
	Sum      int      `json:"sum"`               // of all ranks' numbers, after it went round
	Mapping  string   `json:"mapping,omitempty"` // which ranks share a place, as MPI is told
	Shared   *Share   `json:"shared,omitempty"`
}

// Files beside the program through which script and ranks see each other's words.
const (
	FromNode = "from-node"
	FromVM   = "from-vm"
)

// LookAndWrite is Look of a rank that needs no PMI. The first rank also writes a file.
func LookAndWrite(env func(string) string) (Finding, error) {
	rank, err := strconv.Atoi(env("SLURM_PROCID"))
	if err != nil {
		return Finding{}, fmt.Errorf("SLURM_PROCID=%q: this program is a task of srun", env("SLURM_PROCID"))
	}
	found := Look(rank, env)
	if rank == 0 {
		err = os.WriteFile(FromVM, []byte("written in "+found.VM+"\n"), 0o600)
	}
	return found, err
}

// Look returns what this rank finds without any other.
func Look(rank int, env func(string) string) Finding {
	var name unix.Utsname
	_ = unix.Uname(&name)
	file, _ := os.ReadFile(FromNode)
	return Finding{Rank: rank, VM: env("SLURMV_VM"), UID: os.Getuid(), Kernel: unix.ByteSliceToString(name.Release[:]),
		File: strings.TrimSpace(string(file)), Topology: ReadTopology("/"), VFs: virtualFunctions()}
}

// virtualFunctions counts the interfaces that have the MAC address of a VF of a job: their
// first byte is 6, 10, 14 and so on; that of the VM's own interface is 2.
func virtualFunctions() (n int) {
	links, _ := net.Interfaces()
	for _, l := range links {
		if mac := l.HardwareAddr; len(mac) == 6 && mac[0]%4 == 2 && mac[0] > 2 {
			n++
		}
	}
	return n
}

// Meet sends a number round all ranks, over a connection between each and the next, to
// which each adds its own. It goes round twice, so that all ranks know the sum.
func (r *Rank) Meet(f *Finding, env func(string) string) error {
	l, err := r.listen(names(env))
	if err != nil {
		return err
	}
	defer l.tcp.Close()
	if err := r.Barrier(); err != nil {
		return err
	}
	if f.Mapping, err = r.Get("PMI_process_mapping"); err != nil {
		return err
	}
	f.Sum, err = r.goRound(l)
	return errors.Join(err, r.Barrier())
}

func (r *Rank) goRound(l *listener) (sum int, err error) {
	next, err := r.dial((r.Number + 1) % r.Ranks)
	if err != nil {
		return 0, err
	}
	defer next.Close()
	previous, err := l.accept()
	if err != nil {
		return 0, err
	}
	defer previous.Close()
	for round := range 2 {
		begins := r.Number == 0 && round == 0
		if !begins {
			if _, err := fmt.Fscanln(previous, &sum); err != nil {
				return 0, fmt.Errorf("hear from the rank before: %w", err)
			}
		}
		if round == 0 {
			sum += r.Number
		}
		if round == 0 || r.Number < r.Ranks-1 {
			if _, err := fmt.Fprintln(next, sum); err != nil {
				return 0, fmt.Errorf("tell the next rank: %w", err)
			}
		}
	}
	return sum, nil
}
