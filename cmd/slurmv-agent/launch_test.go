package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// slurmstepd gives the agent the umask of the user, who could so take its directories from
// all others, or give its files to them.
func TestLaunchHasItsOwnUmask(t *testing.T) {
	if os.Getenv("SLURMV_PLAY") == "launch" {
		fmt.Println("launch:", runLaunch(t.Context(), "/nonexistent"))
		fmt.Printf("umask: %03o\n", unix.Umask(0))
		return
	}
	for _, umask := range []string{"000", "777"} {
		c := exec.Command("sh", "-c", "umask "+umask+` && exec "$0" -test.run='^TestLaunchHasItsOwnUmask$' -test.v`, os.Args[0])
		c.Env = append(os.Environ(), "SLURMV_PLAY=launch")
		told, status, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer told.Close()
		c.ExtraFiles = []*os.File{status} // descriptor 3
		out, err := c.CombinedOutput()
		status.Close()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !strings.Contains(string(out), "umask: 022\n") {
			t.Errorf("with the user's umask %s:\n%s", umask, out)
		}
	}
}
