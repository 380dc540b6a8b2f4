package hostdir

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/slurm-v/slurm-v/internal/owner"
)

// A Directory is one of the node's that VMs see.
type Directory struct {
	Job      string // whose VMs they are, for people who list processes
	Path     string
	ReadOnly bool
}

// A Server serves one directory.
type Server struct {
	process *exec.Cmd
	control *os.File // the process ends when this is closed
}

// Start starts the server of a directory, with the rights of the job's owner. It must be
// called while this process can still become the owner. The server ends when this process
// does, or by Close. ctx bounds how long the directory's file server may take to answer.
func Start(ctx context.Context, o owner.Owner, d Directory) (*Server, error) {
	s, err := start(ctx, o, d)
	if err != nil {
		return nil, fmt.Errorf("serve the directory %s to VMs: %w", d.Path, err)
	}
	return s, nil
}

func start(ctx context.Context, o owner.Owner, d Directory) (*Server, error) {
	dir, err := o.OpenDir(ctx, d.Path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// Nothing of this can fail to be encoded.
	orders, _ := json.Marshal(orders{UID: o.UID, GID: o.GID, Groups: o.GroupIDs(), ReadOnly: d.ReadOnly})
	c := exec.Command("/proc/self/exe", d.Job, string(orders))
	c.Args[0], c.Env, c.Dir, c.Stderr = processName, []string{}, "/", os.Stderr
	control, err := owner.StartServer(ctx, c, "directory", dir)
	if err != nil {
		return nil, err
	}
	return &Server{c, control}, nil
}

// Connect returns the server's end for one VM. Its reads and writes are whole messages.
func (s *Server) Connect() (io.ReadWriteCloser, error) {
	conn, err := owner.HandOver(s.control, "directory")
	if err != nil {
		return nil, fmt.Errorf("reach the server of a directory: %w", err)
	}
	return conn, nil
}

// Close ends the server.
func (s *Server) Close() error { return s.control.Close() }
