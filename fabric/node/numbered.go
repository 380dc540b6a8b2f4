package node

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// numbered is a directory with files that have the numbers of jobs as names.
type numbered string

func (d numbered) file(job uint32) string {
	return filepath.Join(string(d), strconv.FormatUint(uint64(job), 10))
}

func (d numbered) set(job uint32) error {
	if err := durable.MakeDirs(string(d), 0o711); err != nil {
		return err
	}
	return durable.WriteFile(d.file(job), nil)
}

func (d numbered) has(job uint32) bool {
	_, err := os.Lstat(d.file(job))
	return err == nil
}

func (d numbered) clear(job uint32) error { return removeIfThere(d.file(job)) }

func (d numbered) list() (jobs []uint32, err error) {
	entries, err := os.ReadDir(string(d))
	if gone(err) {
		return nil, nil
	}
	for _, e := range entries {
		if job, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			jobs = append(jobs, uint32(job))
		}
	}
	return jobs, err
}
