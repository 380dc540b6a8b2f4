package egress

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// processName is the argument 0 that tells a program with this package to be a server.
const processName = "slurmv-egress"

// controlFD is the descriptor that the process inherits.
const controlFD = 3

// A Server connects the VMs of a job with the outside.
type Server struct {
	process *exec.Cmd
	control *os.File // the process ends when this is closed
}

// Start starts a server with the rights of the job's owner. It must be called while this
// process can still become the owner. allowed are destinations as config has them; job is
// for people who list processes. ctx bounds how long the start may last.
func Start(ctx context.Context, o owner.Owner, job string, allowed []string) (*Server, error) {
	s, err := start(ctx, o, job, allowed)
	if err != nil {
		return nil, fmt.Errorf("give the VMs a way out of their network: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, o owner.Owner, job string, allowed []string) (*Server, error) {
	list, err := json.Marshal(allowed)
	if err != nil {
		return nil, err
	}
	c := o.Command(context.Background(), "/proc/self/exe", job, string(list))
	c.Args[0], c.Stderr = processName, os.Stderr
	control, err := owner.StartServer(ctx, c, "egress")
	if err != nil {
		return nil, err
	}
	return &Server{c, control}, nil
}

// Connect returns the server's end for one VM. Its reads and writes are whole packets.
func (s *Server) Connect() (io.ReadWriteCloser, error) {
	conn, err := owner.HandOver(s.control, "egress")
	if err != nil {
		return nil, fmt.Errorf("reach the server that connects VMs with the outside: %w", err)
	}
	return conn, nil
}

// Close ends the server and all its connections.
func (s *Server) Close() error { return s.control.Close() }

// The server is this same program. It runs neither main nor the init functions of packages
// that come later, such as the loading of libvirt.
func init() {
	if len(os.Args) != 3 || os.Args[0] != processName {
		return
	}
	if err := run(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "slurmv-agent: connect VMs with the outside:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run serves VMs until the agent closes the control socket.
func run(list string) error {
	allowed, err := parse(list)
	if err := owner.Report(controlFD, err); err != nil {
		return err
	}
	known := newNames()
	for {
		fd, err := owner.NextConnection(controlFD)
		if err != nil || fd < 0 {
			return err
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		go func() {
			if err := newWay(known, allowed).serve(os.NewFile(uintptr(fd), "VM")); err != nil {
				fmt.Fprintln(os.Stderr, "slurmv-agent: connect a VM with the outside:", err)
			}
		}()
	}
}

// parse reads the destinations in the list that the process is given.
func parse(list string) (allowed destinations, err error) {
	var texts []string
	if err := json.Unmarshal([]byte(list), &texts); err != nil {
		return nil, err
	}
	for _, text := range texts {
		d, err := config.ParseDestination(text)
		if err != nil {
			return nil, err
		}
		allowed = append(allowed, d)
	}
	return allowed, nil
}
