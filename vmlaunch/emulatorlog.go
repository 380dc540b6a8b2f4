package vmlaunch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxEmulatorLog is how long what a QEMU prints may get, in bytes. A QEMU that is well
	// prints its command line.
	maxEmulatorLog = 4 << 20

	// emulatorLogPause is between two looks at the logs.
	emulatorLogPause = 5 * time.Second
)

// boundEmulatorLogs keeps what QEMU prints from filling the disk, until ctx ends.
func (n *Node) boundEmulatorLogs(ctx context.Context) {
	tick := time.NewTicker(emulatorLogPause)
	defer tick.Stop()
	for {
		cut, err := truncateBeyond(n.plan.emulatorLogs(), maxEmulatorLog)
		for _, name := range cut {
			n.log.Warn("what QEMU has printed was too much, and is cut off", "log", name)
		}
		if err != nil {
			n.log.Warn("what QEMU prints is not bounded", "error", err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// truncateBeyond empties the files of dir that are longer than limit, and returns their
// names. Who writes to them goes on at the beginning: libvirt opens them for appending.
func truncateBeyond(dir string, limit int64) (cut []string, failed error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() <= limit {
			continue
		}
		cut = append(cut, e.Name())
		failed = errors.Join(failed, os.Truncate(filepath.Join(dir, e.Name()), 0))
	}
	return cut, failed
}
