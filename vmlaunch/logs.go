package vmlaunch

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

const (
	// saveTimeout bounds the writing of logs into the job's directory. The directory may be
	// on a file server that hangs, and a reclaim must not hang.
	saveTimeout = 10 * time.Second

	// saveDelay bounds the wait for the end of the writer's stderr after the writer has
	// ended. Another process of the user can hold stderr open.
	saveDelay = time.Second

	// keptLogs bounds for how many jobs a node keeps logs. A node keeps a job's logs if it
	// cannot write them into the job's directory.
	keptLogs = 100
)

// saveLogs copies the job's logs and consoles to a place where they outlive the job:
// slurmv-<job>/<node> in the job's working directory, written with the owner's
// rights. If that fails, or no job has made the logs, the place is the node's state directory.
func (s store) saveLogs(ctx context.Context, h journal.Header, dir string) {
	archive, err := archiveLogs(dir)
	if err != nil || archive.Len() == 0 {
		return
	}
	kept := filepath.Join(s.state, "logs")
	if h.ID() != siteWork {
		if err = saveAsOwner(ctx, h, bytes.NewReader(archive.Bytes())); err == nil {
			return
		}
		slog.Warn("logs stay on the node", "job", h.ID(), "directory", kept, "error", err)
	}
	err = os.MkdirAll(kept, 0o711)
	if err == nil {
		err = ExtractLogs(kept, h.ID().String(), archive)
	}
	if err != nil {
		slog.Warn("logs are lost", "job", h.ID(), "error", err)
	}
	dropOldest(kept, keptLogs)
}

// logDir returns where the logs of one node of a job are, relative to the
// directory that the job was submitted from.
func logDir(id journal.ID, node string) string {
	name := fmt.Sprintf("slurmv-%d", id.Job)
	if id.Restart > 0 {
		name += fmt.Sprintf(".%d", id.Restart)
	}
	return filepath.Join(name, node)
}

// archiveLogs collects the log files of a job's directory.
func archiveLogs(dir string) (*bytes.Buffer, error) {
	buffer := &bytes.Buffer{}
	w := tar.NewWriter(buffer)
	for _, pattern := range []string{"*.log", "*.console", "*.json"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if err := archiveLog(w, path); err != nil {
				return nil, err
			}
		}
	}
	return buffer, w.Close()
}

func archiveLog(w *tar.Writer, path string) error {
	text, err := machine.ReadLog(path)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: filepath.Base(path), Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// saveAsOwner writes the archive in a process with the owner's rights: root has no rights
// on a shared file system, and must not follow a user's links.
func saveAsOwner(ctx context.Context, h journal.Header, archive io.Reader) error {
	if h.WorkDir == "" {
		return errors.New("the job has no working directory")
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	c := rightsOf(h).Command(ctx, "/proc/self/exe", "save-logs", h.WorkDir, logDir(h.ID(), h.Node))
	var said owner.Tail
	c.Stdin, c.Stderr, c.WaitDelay = archive, &said, saveDelay
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%w: %s", err, said.Line())
		}
		return nil
	case <-time.After(saveTimeout + 2*saveDelay): // the process hangs in the kernel, where no signal ends it
		return fmt.Errorf("the file server of %s does not answer", h.WorkDir)
	}
}

// rightsOf returns the rights of the job's owner. If the user database does not answer, the
// owner has only the job's group: the logs must not be lost for that.
func rightsOf(h journal.Header) owner.Owner {
	if account, err := owner.Lookup(h.UID, h.GID); err == nil {
		return account
	}
	return owner.Owner{UID: h.UID, GID: h.GID}
}

// ExtractLogs writes the files of archive, a tar stream, into the directory sub of dir. It
// never leaves dir, whatever links are in it: root of a guest that has dir mounted could
// have made them. Only the owner can read the files, because consoles are private.
func ExtractLogs(dir, sub string, archive io.Reader) error {
	root, err := openLogDir(dir, sub)
	if err != nil {
		return err
	}
	defer root.Close()
	r := tar.NewReader(archive)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extractLog(root, header.Name, r); err != nil {
			return err
		}
	}
}

func openLogDir(dir, sub string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.MkdirAll(sub, 0o700); err != nil {
		return nil, err
	}
	return root.OpenRoot(sub)
}

// extractLog replaces the file instead of opening it: the existing one may be a pipe that
// nobody reads.
func extractLog(root *os.Root, name string, r io.Reader) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	return errors.Join(err, file.Close())
}

// dropOldest leaves the newest keep entries of dir.
func dropOldest(dir string, keep int) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= keep {
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return changed(a).Compare(changed(b)) })
	for _, e := range entries[:len(entries)-keep] {
		_ = os.RemoveAll(filepath.Join(dir, e.Name()))
	}
}

func changed(e fs.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
