//go:build !noguests

package vmlaunch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// Every thread gives up its privileges, and no program that is started has any.
func TestPrivilegesAreShed(t *testing.T) {
	p := play(t, "shed", nil)
	for _, tt := range []struct{ what, want string }{
		{"before", "all, child all"},
		{"for the map", "CapInh 0000000000000000 CapPrm 0000000000001020 CapEff 0000000000001020 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
		{"child for the map", "CapInh 0000000000000000 CapPrm 0000000000000000 CapEff 0000000000000000 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
		{"secure bits", "ef"},
		{"serving", "CapInh 0000000000000000 CapPrm 0000000000000020 CapEff 0000000000000020 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
		{"child serving", "CapInh 0000000000000000 CapPrm 0000000000000000 CapEff 0000000000000000 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
	} {
		if got := p.says(tt.what); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.what, got, tt.want)
		}
	}
	t.Log("it took", p.says("took"))
}

// An agent that serves has what that takes, and until the map is out what that takes.
func TestServingAgentHasFewPrivileges(t *testing.T) {
	const serving = "CapInh 0000000000000000 CapPrm 0000000000000020 CapEff 0000000000000020 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"
	for nodes, before := range map[int]string{1: serving, 2: strings.ReplaceAll(serving, "0020", "1020")} {
		agent, socket, _ := startAgent(t, agentPart{Nodes: nodes})
		threads := filepath.Join("/proc", strconv.Itoa(agent.Process.Pid), "task/*/status")
		if got := privileges(t, threads); got != before {
			t.Errorf("%d nodes, before the map: %s; want %s", nodes, got, before)
		}
		client, err := nodeagent.Dial(t.Context(), socket)
		if err != nil {
			t.Fatal(err)
		}
		holder, err := client.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		_ = holder.SendMap(t.Context(), []nodeagent.NodeVMs{{}}) // whatever becomes of it
		if got := privileges(t, threads); got != serving {
			t.Errorf("%d nodes, after the map: %s; want %s", nodes, got, serving)
		}
	}
}

// playShed has threads of Go and of libvirt, which makes its own.
func playShed(t *testing.T) {
	h, err := openURI("test:///default")
	if err != nil {
		t.Fatal(err)
	}
	defer h.conn.Close()
	before := privileges(t, "/proc/self/task/*/status")
	fmt.Printf("before: %s, child %s\n", abridge(before), abridge(ofChild(t)))
	began := time.Now()
	if err := shedPrivileges([]cap.Value{cap.KILL, cap.NET_ADMIN}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	fmt.Println("for the map:", privileges(t, "/proc/self/task/*/status"))
	fmt.Println("child for the map:", ofChild(t))
	fmt.Printf("secure bits: %x\n", cap.GetSecbits())
	if err := keepOnly([]cap.Value{cap.KILL}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("serving:", privileges(t, "/proc/self/task/*/status"))
	fmt.Println("child serving:", ofChild(t))
	threads, _ := filepath.Glob("/proc/self/task/*")
	fmt.Println("took:", took, "with", len(threads), "threads")
}

// abridge says whether a process of root's has what root has here.
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
	return privilegesIn(string(text))
}

// privileges are those of all threads, if they are the same.
func privileges(t *testing.T, pattern string) string {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 2 {
		t.Fatalf("%d threads, %v", len(files), err)
	}
	var same string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // it has ended
		}
		got := privilegesIn(string(text))
		if same != "" && got != same {
			return "threads differ: " + same + " and " + got
		}
		same = got
	}
	return same
}

func privilegesIn(status string) string {
	has, all := statusFields(status), []string{}
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"} {
		all = append(all, name, list(has[name]))
	}
	return strings.Join(all, " ")
}

func TestHidesProcesses(t *testing.T) {
	line := func(mount, options string) string {
		return "24 30 0:22 / " + mount + " rw,nosuid shared:13 - proc proc rw" + options + "\n"
	}
	tests := map[string]struct {
		text string
		want bool
	}{
		"nobody":                 {line("/proc", ""), false},
		"nothing, in words":      {line("/proc", ",hidepid=off"), false},
		"nothing, as a number":   {line("/proc", ",hidepid=0"), false},
		"other users' processes": {line("/proc", ",hidepid=invisible"), true},
		"but from a group":       {line("/proc", ",gid=27,hidepid=2"), true},
		"in another place":       {line("/jail/proc", ",hidepid=2") + line("/proc", ""), false},
		"nothing is mounted":     {"", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := hidesProcesses(tt.text); got != tt.want {
				t.Errorf("hidesProcesses = %v, want %v", got, tt.want)
			}
		})
	}
}
