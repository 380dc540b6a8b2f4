package privileges

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kernel.org/pub/linux/libs/security/libcap/cap"
	"libvirt.org/go/libvirt"

	"github.com/slurm-v/slurm-v/internal/play"
)

// Every thread gives up its privileges, and programs that are started have none.
func TestPrivilegesAreShed(t *testing.T) {
	p := play.Start(t, "shed", nil)
	for _, tt := range []struct{ what, want string }{
		{"before", "all, child all"},
		{"for the map", "CapInh 0000000000000000 CapPrm 0000000000001020 CapEff 0000000000001020 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
		{"child for the map", "CapInh 0000000000000000 CapPrm 0000000000000000 CapEff 0000000000000000 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
		{"secure bits", "ef"},
		{"serving", "CapInh 0000000000000000 CapPrm 0000000000000020 CapEff 0000000000000020 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
		{"child serving", "CapInh 0000000000000000 CapPrm 0000000000000000 CapEff 0000000000000000 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
	} {
		if got := p.Says(tt.what); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.what, got, tt.want)
		}
	}
	t.Log("it took", p.Says("took"))
}

// playShed has threads of Go and of libvirt, which makes threads of its own.
func playShed(t *testing.T, _ string) {
	driver, err := libvirt.NewConnect("test:///default")
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	before := play.Privileges(t, "/proc/self/task/*/status")
	fmt.Printf("before: %s, child %s\n", abridge(before), abridge(ofChild(t)))
	began := time.Now()
	if err := Shed([]cap.Value{cap.KILL, cap.NET_ADMIN}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	fmt.Println("for the map:", play.Privileges(t, "/proc/self/task/*/status"))
	fmt.Println("child for the map:", ofChild(t))
	fmt.Printf("secure bits: %x\n", cap.GetSecbits())
	if err := KeepOnly([]cap.Value{cap.KILL}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("serving:", play.Privileges(t, "/proc/self/task/*/status"))
	fmt.Println("child serving:", ofChild(t))
	threads, _ := filepath.Glob("/proc/self/task/*")
	fmt.Println("took:", took, "with", len(threads), "threads")
}

// abridge says whether a root process has all that root has on this machine.
func abridge(privileges string) string {
	if strings.Contains(privileges, "CapEff 0") && !strings.Contains(privileges, "CapEff 0000000000000000") {
		return "all"
	}
	return privileges
}

func ofChild(t *testing.T) string {
	text, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	return play.PrivilegesIn(string(text))
}

// TestPlay is a process of [play.Start].
func TestPlay(t *testing.T) {
	play.Main(t, map[string]func(*testing.T, string){"shed": playShed})
}
