package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// An allocation is what a job asks for. options are salloc's options for the VMs.
type allocation struct {
	name, user string
	nodes      int
	vmsPerNode int
	options    string
}

// A session is a shell in an allocation of its own on the development cluster.
type session struct {
	allocation
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// end is the line after the output of a script; the exit status follows it.
const end = "-- end of the script: "

// open asks for the allocation.
func open(a allocation) (*session, error) {
	shell := fmt.Sprintf("cd ~/%s && exec salloc -Q --job-name=%s --time=60 --nodes=%d --vm-per-node=%d %s bash", directory, a.name, a.nodes, a.vmsPerNode, a.options)
	cmd := exec.Command("scripts/cluster", "run", "--user", a.user, "--", "bash", "-c", shell)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &session{a, cmd, in, bufio.NewScanner(out)}
	return s, cmd.Start()
}

// run runs a script in the session's shell and returns what it prints on both streams.
func (s *session) run(script string) (string, error) {
	if _, err := fmt.Fprintf(s.in, "{\n%s\n} </dev/null 2>&1\necho '%s'$?\n", script, end); err != nil {
		return "", fmt.Errorf("%s: the allocation has ended: %w", s.name, err)
	}
	var printed strings.Builder
	for s.out.Scan() {
		if status, ok := strings.CutPrefix(s.out.Text(), end); ok {
			if status != "0" {
				return "", fmt.Errorf("%s: exit status %s of\n%s\n%s", s.name, status, script, printed.String())
			}
			return printed.String(), nil
		}
		fmt.Fprintln(&printed, s.out.Text())
	}
	return "", fmt.Errorf("%s: the allocation has ended during\n%s\n%s", s.name, script, printed.String())
}

// close ends the allocation and waits for its end.
func (s *session) close() error {
	return errors.Join(s.in.Close(), s.cmd.Wait())
}
