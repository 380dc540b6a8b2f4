package vmlaunch

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/journal"
)

// TestMain is also what reclaim starts to save logs as the job's owner.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "save-logs" {
		if err := ExtractLogs(os.Args[2], os.Args[3], os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// logArchive is what a job leaves: one log.
func logArchive(t *testing.T) io.Reader {
	t.Helper()
	buffer := &bytes.Buffer{}
	w := tar.NewWriter(buffer)
	err := w.WriteHeader(&tar.Header{Name: "agent.log", Size: 4})
	_, textErr := w.Write([]byte("text"))
	if err := errors.Join(err, textErr, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buffer
}

func TestLogsStayInTheJobsDirectory(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(dir string) error // makes what lies there
		saved   bool
	}{
		"nothing": {func(string) error { return nil }, true},
		"an older log": {func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/job/slurmv-7/n1", 0o700), os.WriteFile(dir+"/job/slurmv-7/n1/agent.log", []byte("older text"), 0o600))
		}, true},
		"a pipe": {func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/job/slurmv-7/n1", 0o700), unix.Mkfifo(dir+"/job/slurmv-7/n1/agent.log", 0o600))
		}, true},
		"a link to elsewhere in place of the directory": {func(dir string) error { return os.Symlink(dir+"/elsewhere", dir+"/job/slurmv-7") }, false},
		"a link upwards": {func(dir string) error { return os.Symlink("../elsewhere", dir+"/job/slurmv-7") }, false},
		"a link in place of the node's": {func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/job/slurmv-7", 0o700), os.Symlink(dir+"/elsewhere", dir+"/job/slurmv-7/n1"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.Mkdir(dir+"/job", 0o700), os.MkdirAll(dir+"/elsewhere/n1", 0o700), tt.prepare(dir)); err != nil {
				t.Fatal(err)
			}
			err := ExtractLogs(dir+"/job", "slurmv-7/n1", logArchive(t))
			if (err == nil) != tt.saved {
				t.Fatalf("error = %v, want none: %t", err, tt.saved)
			}
			text, _ := os.ReadFile(dir + "/job/slurmv-7/n1/agent.log")
			if saved := string(text) == "text"; saved != tt.saved {
				t.Errorf("the log is %q", text)
			}
			if strays, _ := filepath.Glob(dir + "/elsewhere/*/*.log"); len(strays) > 0 {
				t.Errorf("written elsewhere: %v", strays)
			}
		})
	}
}

// others returns the bits of a file's mode that are not the owner's.
func others(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm() & 0o077
}

// Root reads the logs, and the owner's process writes them, with the owner's rights.
func TestLogsAreSavedAsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becomes another user: run as root")
	}
	for name, tt := range map[string]struct {
		job   uint32
		mine  bool // the directory is the owner's
		saved bool // in the directory, not on the node
	}{
		"a directory of the owner's":       {7, true, true},
		"one of root's":                    {7, false, false},
		"of a template, which is no job's": {0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Paths.State = t.TempDir()
			work, job := filetest.PassableDir(t), t.TempDir()
			if tt.mine {
				if err := os.Chown(work, 54321, 54321); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(job+"/agent.log", []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			openStore(cfg, "n1").saveLogs(context.Background(), journal.Header{Version: 1, Job: tt.job, UID: 54321, GID: 54321, Node: "n1", WorkDir: work}, job)
			id := journal.ID{Job: tt.job}
			saved, kept := filepath.Join(work, logDir(id, "n1"), "agent.log"), filepath.Join(cfg.StateDir("n1"), "logs", id.String(), "agent.log")
			path, want, not := saved, uint32(54321), kept
			if !tt.saved {
				path, want, not = kept, 0, saved
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
				t.Errorf("%s belongs to %d, want %d", path, got, want)
			}
			if mode := others(t, path) | others(t, filepath.Dir(path)); mode != 0 {
				t.Errorf("%s is open to others: %v", path, mode)
			}
			if _, err := os.Stat(not); err == nil {
				t.Errorf("%s is there as well", not)
			}
		})
	}
}
