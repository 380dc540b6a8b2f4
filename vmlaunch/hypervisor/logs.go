package hypervisor

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	// maxLog bounds a QEMU's log, in bytes. A QEMU without trouble prints its command line
	// and no more.
	maxLog = 4 << 20

	// logPause is the time between two looks at the logs.
	logPause = 5 * time.Second

	// maxLastWords bounds what [LastWords] returns, in bytes.
	maxLastWords = 300
)

// ofLibvirt is the beginning of a line that libvirt writes into a QEMU's log.
var ofLibvirt = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+[+-]\d{4}: `)

// LastWords returns the last line that the QEMU of a domain has printed since its last start into its log in the directory logs, at most
// 300 bytes; "" if there is none. Warnings do not count: QEMU prints some at each start. Between libvirt's lines is QEMU's command, an argument a line,
// of which each but the last ends with a backslash.
func LastWords(logs, domain string) (words string) {
	text, err := os.ReadFile(filepath.Join(logs, domain+".log"))
	if err != nil {
		return ""
	}
	command := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case ofLibvirt.MatchString(line):
			if strings.Contains(line, ": starting up ") {
				command, words = true, ""
			}
		case command:
			command = strings.HasSuffix(line, `\`)
		case line != "" && !strings.Contains(line, "warning: "):
			words = line
		}
	}
	return words[:min(len(words), maxLastWords)]
}

// BoundLogs keeps QEMU's output in the directory logs from filling the disk, until ctx
// ends. It reports cuts to log.
func BoundLogs(ctx context.Context, logs string, log *slog.Logger) {
	tick := time.NewTicker(logPause)
	defer tick.Stop()
	for {
		cut, err := truncateBeyond(logs, maxLog)
		for _, name := range cut {
			log.Warn("QEMU's log was too long and was emptied", "log", name)
		}
		if err != nil {
			log.Warn("QEMU's logs are not bounded any more", "error", err)
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
// names. Writers then continue at the beginning of the file, because libvirt opens logs for
// appending.
func truncateBeyond(dir string, limit int64) (cut []string, failed error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the VMs are another program's, and so are the logs
	}
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
