package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/opensm"
)

func withPool() config.Fabric {
	f := config.Default().Fabric
	f.PKey.Pool = config.Tags{{First: 0x1000, Last: 0x1fff}}
	return f
}

func TestReadOrder(t *testing.T) {
	text := func(o Order) string {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ours, others := fabric.PortGUID(7, 0, 0), fabric.GUID(0x0002c9030001e240)
	tests := map[string]struct {
		text string
		want string // "" for none
	}{
		"members of a job":               {text(Order{PKey: 0x1000, Join: []fabric.GUID{ours}}), ""},
		"a P_Key of the site's own":      {text(Order{PKey: 0x0042, Join: []fabric.GUID{ours}}), "P_Key 0x8042 is in no pool"},
		"a port of a node that joins":    {text(Order{PKey: 0x1000, Join: []fabric.GUID{others}}), "is not of a job's VF"},
		"a port of a node that leaves":   {text(Order{PKey: 0x1000, Leave: []fabric.GUID{others}}), "is not of a job's VF"},
		"text that is none":              {"Default=0x7fff:ALL=full;", "standard input"},
		"nothing, and so the zero P_Key": {"{}", "is in no pool"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ReadOrder(withPool(), strings.NewReader(tt.text))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestOrderChange(t *testing.T) {
	a, b, c := fabric.PortGUID(7, 0, 0), fabric.PortGUID(7, 1, 0), fabric.PortGUID(8, 0, 0)
	forced := fabric.PortGUID(6, 0, 0) // of a job whose release was forced
	p := opensm.Partitions{0x1000: {forced}, 0x1001: {c}}
	for _, step := range []struct {
		order Order
		want  opensm.Partitions
	}{
		{Order{PKey: 0x1000, Join: []fabric.GUID{a, b}}, opensm.Partitions{0x1000: {a, b}, 0x1001: {c}}},
		{Order{PKey: 0x1000, Join: []fabric.GUID{a, b}}, opensm.Partitions{0x1000: {a, b}, 0x1001: {c}}},
		{Order{PKey: 0x1000, Leave: []fabric.GUID{a}}, opensm.Partitions{0x1000: {b}, 0x1001: {c}}},
		{Order{PKey: 0x1000, Leave: []fabric.GUID{a, b}}, opensm.Partitions{0x1001: {c}}},
	} {
		if err := step.order.change(p); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, p); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", step.order, diff)
		}
	}
}

// OpenSM reads its file when it starts, but a job that begins before has no P_Key.
func TestNobodyJoinsWithoutOpenSM(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "partitions.conf")
	if err := os.WriteFile(file, []byte("Default=0x7fff : ALL=limited ;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var said []string
	m := openSM{
		site: config.PKeyPool{PartitionsFile: file, OpenSMPIDFile: filepath.Join(dir, "pid")},
		warn: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
	}
	for _, call := range []string{"the first", "the second, which finds the file as it should be"} {
		err := m.Join(t.Context(), 0x1000, ports)
		if err == nil || !strings.Contains(err.Error(), "OpenSM does not run on this host") {
			t.Errorf("%s call: error %v", call, err)
		}
	}
	_ = m.Leave(shortly(t), 0x1000, ports) // whether the ports have left, only a fabric can say
	if len(said) != 1 || !strings.Contains(said[0], "OpenSM does not run") {
		t.Errorf("it warns %q", said)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "slurmv_1000") {
		t.Errorf("%v; the file still says %s", err, text)
	}
}

// script makes a command of the site out of a shell script.
func script(t *testing.T, dir, text string) openSM {
	t.Helper()
	path := filepath.Join(dir, "tell")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return openSM{site: config.PKeyPool{OpenSMCommand: []string{path}}}
}

var ports = []fabric.GUID{fabric.PortGUID(7, 0, 0)}

func TestTheCommandGetsTheOrder(t *testing.T) {
	dir := t.TempDir()
	m := script(t, dir, "cat >"+dir+"/order\n[ \"$1\" != fail ] || { echo the port still has it; exit 1; }\n")
	if err := m.Join(context.Background(), 0x1000, ports); err != nil {
		t.Fatal(err)
	}
	text, err := os.Open(filepath.Join(dir, "order"))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	got, err := ReadOrder(withPool(), text)
	if diff := cmp.Diff(Order{PKey: 0x1000, Join: ports}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	m.site.OpenSMCommand = append(m.site.OpenSMCommand, "fail")
	if err := m.Leave(context.Background(), 0x1000, ports); err == nil || !strings.Contains(err.Error(), "still has it") {
		t.Errorf("error %v", err)
	}
}

// With ControlPersist, ssh leaves a process that has the output open for minutes.
func TestACommandThatLeavesAProcess(t *testing.T) {
	const left = "cat >/dev/null\nsleep 40 &\n"
	tests := map[string]struct {
		script string
		fails  bool
	}{
		"after it has succeeded":   {left, false},
		"after it has failed":      {left + "exit 1\n", true},
		"and does not end in time": {left + "wait\n", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if name == "and does not end in time" {
				ctx = shortly(t)
			}
			err := script(t, t.TempDir(), tt.script).Leave(ctx, 0x1000, ports)
			if (err != nil) != tt.fails || errors.Is(err, context.DeadlineExceeded) != (name == "and does not end in time") {
				t.Errorf("error %v", err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestACommandThatSaysTooMuch(t *testing.T) {
	m := script(t, t.TempDir(), "cat >/dev/null\nhead -c 20000000 /dev/zero | tr '\\0' x\necho\necho the port still has it\nexit 1\n")
	if err := m.Leave(t.Context(), 0x1000, ports); err == nil || !strings.HasSuffix(err.Error(), "exit status 1: the port still has it") || len(err.Error()) > 1000 {
		t.Errorf("error %.1000v", err)
	}
}
