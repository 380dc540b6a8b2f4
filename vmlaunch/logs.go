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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
)

const (
	// saveTimeout bounds the writing of logs into the job's directory, which may
	// be on a file server that hangs; a reclaim must not.
	saveTimeout = 10 * time.Second

	// keptLogs is how many jobs' logs a node keeps for which the job's own
	// directory could not be used.
	keptLogs = 100
)

// saveLogs puts the job's logs and consoles where they outlive the node's view of
// the job: slurmv-<job>/<node> in the directory that the job was submitted from,
// written with the owner's rights; else in the node's state directory.
func saveLogs(ctx context.Context, cfg config.Config, h journal.Header, dir string) {
	archive, err := archiveLogs(dir)
	if err != nil || archive.Len() == 0 {
		return
	}
	copied := bytes.NewReader(archive.Bytes())
	if err = saveAsOwner(ctx, h, copied); err == nil {
		return
	}
	slog.Warn("logs stay on the node", "job", h.ID(), "error", err)
	kept := filepath.Join(cfg.StateDir(h.Node), "logs")
	if err := ExtractLogs(filepath.Join(kept, h.ID().String()), archive); err != nil {
		slog.Warn("logs are lost", "job", h.ID(), "error", err)
	}
	dropOldest(kept, keptLogs)
}

// LogDir returns where the logs of one node of a job are, relative to the
// directory that the job was submitted from.
func LogDir(id journal.ID, node string) string {
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
	text, err := readLog(path)
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

// saveAsOwner runs this program as the job's owner to write the archive: on a
// shared file system root has no rights, and must not follow a user's links.
func saveAsOwner(ctx context.Context, h journal.Header, archive io.Reader) error {
	if h.WorkDir == "" {
		return errors.New("the job has no working directory")
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	dir := filepath.Join(h.WorkDir, LogDir(h.ID(), h.Node))
	c := exec.CommandContext(ctx, "/proc/self/exe", "save-logs", dir)
	c.Stdin, c.Dir, c.Env = archive, "/", []string{}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: h.UID, Gid: h.GID}}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// ExtractLogs writes the files of archive, a tar stream, into dir.
func ExtractLogs(dir string, archive io.Reader) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
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

func extractLog(root *os.Root, name string, r io.Reader) error {
	file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
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
