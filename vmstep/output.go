package vmstep

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// waitDelay is how long to wait for the end of the output after srun's end: another process
// may hold it open.
const waitDelay = 5 * time.Second

// An output is srun's stdout and stderr. srun inherits their reading ends too. So if the
// keeper is killed, srun's pipes do not break; srun would kill the step if they did.
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

// started closes the ends that only srun needs.
func (o *output) started() { _ = closeAll(o.writing) }

// read copies the streams to their readers. It returns a function that waits for the end of
// both.
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
