package images

import (
	"bytes"
	"context"
	"io"
	"os"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// A Whole is an image of one file that is sent elsewhere, as often as it takes.
type Whole struct {
	Format string
	Size   int64 // in bytes, as it was checked

	beginning []byte // of the file, as it was checked
	file      *os.File
}

// ReadAt reads the beginning that was checked, and the file behind it.
func (w *Whole) ReadAt(into []byte, offset int64) (n int, err error) {
	if offset < int64(len(w.beginning)) {
		n = copy(into, w.beginning[offset:])
	}
	if n == len(into) {
		return n, nil
	}
	more, err := w.file.ReadAt(into[n:], offset+int64(n))
	return n + more, err
}

// Close closes the file.
func (w *Whole) Close() error { return w.file.Close() }

// mostCluster is the largest cluster of the qcow2 format, in bytes. The first one says which
// other files an image needs.
const mostCluster = 2 << 20

// OpenWhole opens an image with the user's rights, and refuses one that needs other files:
// whoever gets it would open the files of those names. The user can change the image
// meanwhile, so the beginning that is checked is the beginning that is sent.
func OpenWhole(ctx context.Context, site config.Images, path string, as owner.Owner) (*Whole, error) {
	file, real, err := open(ctx, as, "image", path)
	if err != nil {
		return nil, err
	}
	w := &Whole{file: file}
	if !within(allowedDirs(site, path), real) {
		err = &Error{Path: path, Reason: "is not in a directory that the site allows images in"}
	}
	if err == nil {
		err = w.check(path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return w, nil
}

func (w *Whole) check(path string) error {
	info, err := w.file.Stat()
	if err != nil {
		return err
	}
	beginning := make([]byte, min(info.Size(), mostCluster))
	if _, err := io.ReadFull(w.file, beginning); err != nil {
		return &Error{Path: path, Reason: "cannot be read", Err: err}
	}
	head, err := readHeader(bytes.NewReader(beginning), info.Size(), "")
	switch {
	case err != nil:
		return &Error{Path: path, Reason: err.Error()}
	case head.backing != "":
		return &Error{Path: path, Reason: "is based on another file; make it one file with: qemu-img convert -O qcow2"}
	}
	w.Format, w.Size, w.beginning = head.format, info.Size(), beginning
	return nil
}
