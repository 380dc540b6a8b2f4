package slurm

import (
	"bytes"
	"io"
	"regexp"
)

// remark matches srun's message about the exit status of a task.
var remark = regexp.MustCompile(`^srun: error: \S+: task 0: Exited with exit code [0-9]+$`)

// A RemarkFilter passes on the output of srun and of the program that it runs, except
// srun's remark on the exit status of its only task. It passes on an incomplete line at
// once if that cannot become a remark: prompts have no line end.
type RemarkFilter struct {
	Out  io.Writer
	line []byte // held back
}

const remarkStart = "srun: error: "

// Write never holds back more than the beginning of a remark.
func (f *RemarkFilter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			end = len(p)
		}
		f.line = append(f.line, p[:end]...)
		p = p[end:]
		if err := f.pass(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// pass writes the line held back, unless it is a remark or may become one.
func (f *RemarkFilter) pass() error {
	whole := f.line[len(f.line)-1] == '\n'
	switch {
	case whole && remark.Match(bytes.TrimRight(f.line, "\r\n")):
		f.line = f.line[:0]
		return nil
	case !whole && len(f.line) < 1024 && mayBeRemark(f.line):
		return nil
	}
	return f.Close()
}

func mayBeRemark(line []byte) bool {
	n := min(len(line), len(remarkStart))
	return string(line[:n]) == remarkStart[:n]
}

// Close writes what is held back.
func (f *RemarkFilter) Close() error {
	line := f.line
	f.line = nil
	_, err := f.Out.Write(line)
	return err
}
