package vmstep

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// waitDelay is how long output is awaited that some other process holds open
// after srun's end.
const waitDelay = 5 * time.Second

// An output is srun's two streams. srun holds their reading ends, too: if the
// keeper is killed, whatever a node prints goes nowhere, instead of breaking a
// pipe, upon which srun would kill the step.
type output struct {
	reading, writing []*os.File
}

func newOutput(cmd *exec.Cmd) (*output, error) {
	var o output
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(err, closeAll(o.reading), closeAll(o.writing))
		}
		o.reading, o.writing = append(o.reading, r), append(o.writing, w)
	}
	cmd.Stdout, cmd.Stderr = o.writing[0], o.writing[1]
	cmd.ExtraFiles = o.reading
	return &o, nil
}

// started closes what only srun needs.
func (o *output) started() { _ = closeAll(o.writing) }

// read copies the streams to their readers and returns what waits for the end.
func (o *output) read(readers ...io.WriteCloser) (wait func()) {
	var both sync.WaitGroup
	for i, r := range readers {
		both.Go(func() {
			_, _ = io.Copy(r, o.reading[i])
			_ = r.Close()
		})
	}
	return func() {
		late := time.AfterFunc(waitDelay, func() { _ = closeAll(o.reading) })
		both.Wait()
		late.Stop()
		_ = closeAll(o.reading)
	}
}

func closeAll(files []*os.File) error {
	var all error
	for _, f := range files {
		all = errors.Join(all, f.Close())
	}
	return all
}
