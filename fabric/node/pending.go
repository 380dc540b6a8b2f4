package node

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// pending is the directory with a file for each job that has ended of which it is not known
// yet which run.
type pending string

func (p pending) file(job uint32) string {
	return filepath.Join(string(p), strconv.FormatUint(uint64(job), 10))
}

func (p pending) set(job uint32) error {
	if err := durable.MakeDirs(string(p), 0o711); err != nil {
		return err
	}
	return durable.WriteFile(p.file(job), nil)
}

func (p pending) clear(job uint32) error { return removeIfThere(p.file(job)) }

// list returns the jobs that have ended of which it is not known which run.
func (p pending) list() (jobs []uint32, err error) {
	entries, err := os.ReadDir(string(p))
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
