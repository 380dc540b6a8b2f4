package vmlaunch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
)

// hostileUser is a job's owner, in whose hands the directories of its VMs are.
const hostileUser = 54321

// aJobWithFiles makes a job whose VM has a directory; fill fills the directory.
func aJobWithFiles(t *testing.T, fill func(dir string) error) (config.Config, journal.ID) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("run as root: the directories of VMs are users'")
	}
	dir := t.TempDir()
	cfg := stateIn(filepath.Join(dir, "state"))
	cfg.Paths.Run = filepath.Join(dir, "run", "%n")
	n := aJob(t, cfg, 42, jobspec.IVShmem{})
	n.Plan.Owner.UID, n.Plan.Owner.GID = hostileUser, hostileUser
	libvirts := filepath.Join(n.Plan.Run, "libvirt", "lib")
	err := errors.Join(n.makeDirs(), os.Mkdir(libvirts, 0o750), os.Chown(libvirts, hostileUser, hostileUser),
		fill(libvirts), fill(n.Plan.VMs[0].Dir), n.journal.Close())
	if err != nil {
		t.Fatal(err)
	}
	return cfg, n.Plan.Job.ID
}

// deep makes more levels of directories than this process may have files open.
func deep(dir string) error {
	at, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	for range 2000 {
		if err == nil {
			err = unix.Mkdirat(at, "d", 0o700)
		}
		next, open := unix.Openat(at, "d", unix.O_DIRECTORY, 0)
		err = errors.Join(err, open, unix.Close(at))
		at = next
	}
	return errors.Join(err, unix.Close(at))
}

// Whatever users do in their own directories, the job is over when it is reclaimed.
func TestReclaimOfFilesInTheUsersHand(t *testing.T) {
	tests := map[string]func(dir string) error{
		"honest": func(dir string) error { return os.WriteFile(filepath.Join(dir, "disk.qcow2"), []byte("text"), 0o600) },
		"deep":   deep,
		"closed": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), os.Chmod(filepath.Join(dir, "a"), 0), os.Chmod(dir, 0))
		},
	}
	for name, fill := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, id := aJobWithFiles(t, fill)
			withDescriptors(t, 512, func() {
				for range 2 {
					if err := Reclaim(t.Context(), cfg, "n2", id); err != nil {
						t.Error(err)
					}
				}
			})
			if name == "deep" { // more than a busy machine may remove in trashPatience
				EmptyTrash(t.Context(), cfg, "n2", time.Minute)
			}
			mustHaveNothing(t, cfg)
		})
	}
}

// oldJournal is what the version before this one wrote: its header also has the job's
// cluster, name and spec.
const oldJournal = `a35da07e {"op":"holder","holder":{"pid":26160,"start":1508096}}
6156cf8d {"op":"header","header":{"version":1,"job":42,"restart":1,"step":3,"uid":1000,"gid":100,"node":"n2","cluster":"c1","job_name":"my job","work_dir":"/nowhere","spec":"{\"vms_per_node\":2,\"vcpus\":1,\"work_dir\":\"/nowhere\"}","boot_id":"3ba9007b-43ec-4513-bbad-864cbcd6bd44","created":"2026-11-22T22:55:22.675866921Z"}}
eee5b3cd {"op":"intend","kind":"files","name":"/var/lib/slurmv/n2/jobs/42.1"}
f00c6f6a {"op":"done","kind":"files","name":"/var/lib/slurmv/n2/jobs/42.1"}
f168f1b9 {"op":"intend","kind":"template","name":"/gone"}
`

// Jobs run while a node gets another version: what they hold must be given back.
func TestReclaimOfAJournalOfTheVersionBefore(t *testing.T) {
	dir := t.TempDir()
	cfg := stateIn(filepath.Join(dir, "state"))
	cfg.Paths.Run = filepath.Join(dir, "run", "%n")
	id := journal.ID{Job: 42, Restart: 1}
	job := journal.Dir(cfg.StateDir("n2"), id)
	err := errors.Join(os.MkdirAll(filepath.Join(job, "vm0"), 0o700),
		os.WriteFile(filepath.Join(job, "journal"), []byte(oldJournal), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	before, err := journal.Read(cfg.StateDir("n2"), id)
	if err != nil || before.Header.Step != 3 || before.Header.WorkDir != "/nowhere" || len(before.Held) != 2 {
		t.Fatalf("read %+v, %v", before, err)
	}
	if err := Reclaim(t.Context(), cfg, "n2", id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(job); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the job's directory: %v", err)
	}
}

// mustHaveNothing reports what is left of jobs on the node, which has a trash.
func mustHaveNothing(t *testing.T, cfg config.Config) {
	t.Helper()
	for _, dir := range []string{cfg.StateDir("n2"), cfg.RunDir("n2")} {
		for _, of := range []string{"jobs", "trash"} {
			left, err := os.ReadDir(filepath.Join(dir, of))
			if len(left) > 0 || err != nil {
				t.Errorf("in %s/%s: %v, %v", dir, of, left, err)
			}
		}
	}
	if TrashLeft(cfg, "n2") {
		t.Error("the trash is not empty")
	}
}

// withDescriptors runs a function while the process may have so many files open.
func withDescriptors(t *testing.T, most uint64, run func()) {
	t.Helper()
	var before syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before)
	if err := errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: before.Max})); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }()
	run()
}

// Everything that a reclaim leaves drains the node, except files.
func TestWhatIsLeftIsToldApart(t *testing.T) {
	for name, tt := range map[string]struct {
		kind  string
		files bool
	}{
		"files": {recordFiles, true}, "sockets": {recordRun, true}, "a draft": {template.Work, true},
		"a region": {recordRegion, false}, "the network": {recordNetwork, false},
	} {
		t.Run(name, func(t *testing.T) {
			undo := undoers[tt.kind]
			defer func() { undoers[tt.kind] = undo }()
			broken := errors.New("it is broken")
			cfg := stateIn(t.TempDir())
			undoers[tt.kind] = func(store, context.Context, *journal.Journal, string) error { return broken }
			n := aJob(t, cfg, 42, jobspec.IVShmem{})
			if err := n.journal.Intend(tt.kind, "x", nil); err != nil {
				t.Fatal(err)
			}
			err := n.store.reclaim(t.Context(), n.journal)
			if !errors.Is(err, broken) || errors.Is(err, ErrFiles) != tt.files {
				t.Errorf("error = %v, mere files: %v", err, errors.Is(err, ErrFiles))
			}
			if _, err := journal.Read(cfg.StateDir("n2"), n.Plan.Job.ID); err != nil {
				t.Errorf("the journal is gone: %v", err)
			}
		})
	}
}

// nova ends its VMs, and is waited for: a QEMU that is killed while nova starts it makes nova keep the server for ever.
// One that nova never ends is killed, at once if the cloud does not take the job's servers back.
func TestNovaEndsItsVMs(t *testing.T) {
	const long = time.Hour
	for name, tt := range map[string]struct {
		first    bool // the job's first node, which asks nova
		patience time.Duration
		deadline time.Duration // of the reclaim
		lives    string        // how long the VM lives unless it is killed
		killed   bool
		want     error
	}{
		"nova does":                      {false, long, long, "1", false, nil},
		"nova does not":                  {false, time.Millisecond, long, "1000", true, nil},
		"nova cannot be asked":           {true, long, long, "1000", true, ErrCloud},
		"the VM has ended long":          {false, long, long, "0", false, nil},
		"the next reclaim has more time": {false, long, time.Millisecond, "1", false, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			n := aJob(t, stateIn(t.TempDir()), 42, jobspec.IVShmem{})
			n.store.novaPatience, n.store.backend.CloudsFile = tt.patience, filepath.Join(t.TempDir(), "clouds.yaml")
			if tt.first {
				if err := n.journal.Intend(recordServers, "42.0", nil); err != nil {
					t.Fatal(err)
				}
			}
			const uuid = "5e1f5e1f-2222-4333-8444-555555555555"
			if err := n.journal.Intend(recordInstance, uuid, nil); err != nil {
				t.Fatal(err)
			}
			qemu := asQEMU(t, uuid, tt.lives)
			ended := make(chan error, 1)
			go func() { ended <- qemu.Wait() }()
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			defer cancel()
			if err, _ := n.store.undoAll(ctx, n.journal); !errors.Is(err, tt.want) {
				t.Error(err)
			}
			if <-ended; (qemu.ProcessState.ExitCode() != 3) != tt.killed {
				t.Errorf("the VM ended by %v", qemu.ProcessState)
			}
			if left := named(n.journal, recordInstance); (len(left) != 0) != (tt.deadline < long) {
				t.Errorf("the journal has %v", left)
			}
		})
	}
}

// asQEMU runs a process with the command line of a domain's QEMU. It ends after so many seconds with exit status 3.
func asQEMU(t *testing.T, uuid, lives string) *exec.Cmd {
	t.Helper()
	qemu := exec.Command("sh", "-c", "sleep "+lives+"; exit 3", "sh", "-uuid", uuid)
	qemu.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-qemu.Process.Pid, syscall.SIGKILL) })
	return qemu
}

// nova may take all the time that a reclaim has. All else of the job is given back meanwhile.
func TestNothingWaitsForNova(t *testing.T) {
	servers, network := undoers[recordServers], undoers[recordNetwork]
	defer func() { undoers[recordServers], undoers[recordNetwork] = servers, network }()
	given := make(chan struct{})
	undoers[recordNetwork] = func(store, context.Context, *journal.Journal, string) error { close(given); return nil }
	undoers[recordServers] = func(_ store, ctx context.Context, _ *journal.Journal, _ string) error {
		select {
		case <-given:
			return nil
		case <-ctx.Done():
			return errors.New("the network waits for nova")
		}
	}
	n := aJob(t, stateIn(t.TempDir()), 42, jobspec.IVShmem{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := errors.Join(n.journal.Intend(recordServers, "42.0", nil), n.journal.Intend(recordNetwork, "x", nil))
	if failed, files := n.store.undoAll(ctx, n.journal); err != nil || failed != nil || files != nil {
		t.Error(err, failed, files)
	}
	if left := n.journal.Held(); len(left) != 0 {
		t.Errorf("the journal still has %v", left)
	}
}
