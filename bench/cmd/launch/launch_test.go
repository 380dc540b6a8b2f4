package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQEMUAloneOpensItsOwnSockets(t *testing.T) {
	args := []string{
		"/usr/bin/qemu-system-x86_64", "-S",
		"-object", `{"qom-type":"secret","id":"masterKey0","file":"/state/master-key.aes"}`,
		"-chardev", "socket,id=charmonitor,fd=27,server=on,wait=off", "-mon", "chardev=charmonitor,id=monitor",
		"-chardev", "socket,id=charserial0,fd=28,server=on,wait=off",
		"-netdev", `{"type":"tap","fd":"30","id":"hostnet0"}`,
		"-blockdev", `{"filename":"/state/overlay.qcow2"}`,
	}
	want := []string{
		"/usr/bin/qemu-system-x86_64",
		"-chardev", "socket,id=charserial0,path=$DIR/console,server=on,wait=off",
		"-netdev", `{"type":"tap","ifname":"bench0","script":"no","downscript":"no","id":"hostnet0"}`,
		"-blockdev", `{"filename":"$DIR/overlay.qcow2"}`,
	}
	got := alone(args, strings.NewReplacer("/state/overlay.qcow2", "$DIR/overlay.qcow2"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("arguments differ (-want +got):\n%s", diff)
	}
}

// --rest finds the missing points by comparison, so each point must exist only once.
func TestEveryPointIsMeasuredOnce(t *testing.T) {
	for name, b := range map[string]*bench{"as usual": {}, "quick": {quick: true}, "full": {full: true}} {
		t.Run(name, func(t *testing.T) {
			points, rounds := b.points()
			if len(points) == 0 || len(points) != len(rounds) {
				t.Fatalf("%d points, %d numbers of rounds", len(points), len(rounds))
			}
			for i, p := range points {
				if p.VMs%p.Nodes != 0 {
					t.Errorf("%d VMs cannot be spread evenly over %d nodes", p.VMs, p.Nodes)
				}
				for _, q := range points[:i] {
					if p.like(q) {
						t.Errorf("%d VMs on %d nodes, %s: twice", p.VMs, p.Nodes, p.way())
					}
				}
			}
		})
	}
}
