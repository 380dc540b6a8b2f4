package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmstep"
)

// playSudo plays sudo and the agent that it runs as root: launch --task listens
// until reclaim --task tells it to stop. The file nosudo takes the permission away,
// the file fail holds what the agent fails with; with the file busy programs do not
// end.
func playSudo() int {
	words := strings.Join(os.Args[1:], " ")
	if _, err := os.Stat(playPath("nosudo")); err == nil {
		fmt.Fprintln(os.Stderr, "sudo: a password is required")
		return 1
	}
	switch {
	case strings.HasSuffix(words, "/slurmv-agent launch --task"):
		return playTaskLaunch()
	case strings.HasSuffix(words, "/slurmv-agent reclaim --task"):
		conn, err := net.Dial("unix", playSocket())
		if err != nil {
			return 0 // nothing is left
		}
		nodeagent.NewConn(conn).WriteJSON(nodeagent.Request{Op: nodeagent.OpStop})
		io.Copy(io.Discard, conn)
		return 0
	}
	fmt.Fprintln(os.Stderr, "sudo: not allowed:", words)
	return 1
}

func playSocket() string { return filepath.Join(playPath("run"), "jobs", "7.0", "agent.sock") }

func playTaskLaunch() int {
	text, _ := io.ReadAll(os.Stdin)
	spec, err := jobspec.Decode(string(text))
	if _, err := os.Stat(playPath("crash")); err == nil {
		fmt.Fprintln(os.Stderr, "fatal error: out of memory\nand more")
		return 2
	}
	if fail, failErr := os.ReadFile(playPath("fail")); failErr == nil || err != nil {
		fmt.Println("error", strings.TrimSpace(string(fail)), err)
		return 1
	}
	fmt.Print("say ")
	vmstep.WriteFrame(os.Stdout, "n1", vmstep.KindProgress, vmstep.Progress{Stage: "boot", Millis: int64(spec.VMsPerNode) * 1000})
	os.MkdirAll(filepath.Dir(playSocket()), 0o700)
	os.Remove(playSocket())
	listener, err := net.Listen("unix", playSocket())
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	os.Stdout.Close()
	os.WriteFile(playPath("up"), nil, 0o600)
	for {
		raw, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		conn := nodeagent.NewConn(raw)
		var r nodeagent.Request
		conn.ReadJSON(nodeagent.MaxRequest, &r)
		if r.Op == nodeagent.OpStop {
			return 0
		}
		conn.WriteJSON(nodeagent.Reply{Node: &nodeagent.NodeVMs{Node: "n1", VMs: []nodeagent.VM{{Name: "vm0"}}}})
		go func() {
			var m nodeagent.HoldMessage
			conn.ReadJSON(nodeagent.MaxMap, &m)
			if _, err := os.Stat(playPath("busy")); err != nil {
				conn.WriteJSON(nodeagent.HoldMessage{Ended: m.Ending})
			}
		}()
	}
}
