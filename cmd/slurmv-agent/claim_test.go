package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

func TestSrunAddress(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		want string
	}{
		"a step":              {map[string]string{"SLURM_SRUN_COMM_HOST": "10.0.0.1", "SLURM_SRUN_COMM_PORT": "40123"}, "10.0.0.1:40123"},
		"a step by IPv6":      {map[string]string{"SLURM_SRUN_COMM_HOST": "fd00::1", "SLURM_SRUN_COMM_PORT": "40123"}, "[fd00::1]:40123"},
		"no step":             {map[string]string{}, ""},
		"a step with no host": {map[string]string{"SLURM_SRUN_COMM_PORT": "40123"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := srunAddress(func(name string) string { return tt.env[name] }); got != tt.want {
				t.Errorf("address = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestUntilRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		untilRefused(t.Context(), l.Addr().String(), time.Millisecond)
		close(done)
	}()
	for range 3 { // it goes on asking
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	select {
	case <-done:
		t.Fatal("somebody listens")
	default:
	}
	l.Close()
	<-done

	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	untilRefused(ctx, "", time.Millisecond) // nobody to ask: until the end
}

func TestCauseOfALostProgram(t *testing.T) {
	vm := nodeagent.VM{Number: 3, Name: "vm3"}
	off := nodeagent.VM{Number: 3, Name: "vm3", Cause: "powered itself off"}
	other := nodeagent.VM{Number: 2, Name: "vm2", Cause: "crashed"}
	mine := nodeagent.Claim{Device: 1, Number: 7}
	tests := map[string]struct {
		node  nodeagent.NodeVMs
		claim string
		want  string
	}{
		"its VM has ended":       {nodeagent.NodeVMs{VMs: []nodeagent.VM{other, off}}, "1.7", "vm3 powered itself off, and the program in it is lost"},
		"another VM has ended":   {nodeagent.NodeVMs{VMs: []nodeagent.VM{other, vm}}, "", ""},
		"its claim has ended":    {nodeagent.NodeVMs{Claims: []nodeagent.Claim{{Device: 1, Number: 8}}}, "1.7", "the run has lost its claim on IVShmem device 1, so its program in vm3 was ended"},
		"its claim lives":        {nodeagent.NodeVMs{Claims: []nodeagent.Claim{mine}}, "1.7", ""},
		"it never had any claim": {nodeagent.NodeVMs{Claims: []nodeagent.Claim{mine}}, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (execOptions{claim: tt.claim}).causeIn(tt.node, &vm); got != tt.want {
				t.Errorf("cause = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDeviceEnv(t *testing.T) {
	t.Setenv("SLURM_GTIDS", "2,3")
	reply := nodeagent.Reply{IVShmemSize: 1 << 20}
	tests := map[string]struct {
		o    execOptions
		want int
	}{
		"without a claim":          {execOptions{}, 0},
		"a task":                   {execOptions{claim: "0.5"}, 3},
		"mpirun: no word of ranks": {execOptions{claim: "0.5", mpirun: true}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.o.deviceEnv(reply); len(got) != tt.want {
				t.Errorf("variables = %q, want %d", got, tt.want)
			}
		})
	}
}
