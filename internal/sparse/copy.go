package sparse

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Copy makes dst, which is empty, a copy of src with the same holes. It returns how many
// bytes of data it has copied; none if the file system lets both files share their
// blocks. It calls report at the start, and after each further part.
func Copy(ctx context.Context, dst, src *os.File, report func(done int64)) (int64, error) {
	info, err := src.Stat()
	if err != nil {
		return 0, err
	}
	report(0)
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return 0, nil
	}
	d := copying{ctx: ctx, dst: dst, src: src, report: report, move: inKernel}
	if err := d.run(); err != nil {
		return d.done, err
	}
	return d.done, dst.Truncate(info.Size())
}

type copying struct {
	ctx      context.Context
	dst, src *os.File
	report   func(int64)
	move     func(dst, src *os.File, at, length int64) (int64, error)
	done     int64
}

// stride is the number of bytes copied between two checks of the context.
const stride = 4 << 20

func (d *copying) run() error {
	for at := int64(0); ; {
		from, to, err := NextData(d.src, at)
		if err != nil || from == to {
			return err
		}
		for at = from; at < to; {
			n, err := d.step(at, min(stride, to-at))
			if err != nil {
				return err
			}
			at += n
		}
	}
}

// step copies some of the data at offset at. It tells the kernel to start writing it to
// the disk, so that the fsync at the end has little left to do.
func (d *copying) step(at, length int64) (int64, error) {
	if d.ctx.Err() != nil {
		return 0, context.Cause(d.ctx)
	}
	n, err := d.move(d.dst, d.src, at, length)
	if cannot(err) {
		d.move = byHand
		n, err = d.move(d.dst, d.src, at, length)
	}
	if err != nil {
		return 0, err
	}
	_ = unix.SyncFileRange(int(d.dst.Fd()), at, n, unix.SYNC_FILE_RANGE_WRITE)
	d.done += n
	d.report(d.done)
	return n, nil
}

// inKernel lets the kernel copy, which can delegate that to an NFS server.
func inKernel(dst, src *os.File, at, length int64) (int64, error) {
	from, to := at, at
	n, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, int(length), 0)
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return int64(n), err
}

// cannot reports whether the kernel is unable to copy between these file systems.
func cannot(err error) bool {
	return errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM)
}

// byHand copies by reading and writing, and leaves holes for zeros: some file servers do
// not tell where a file has holes.
func byHand(dst, src *os.File, at, length int64) (int64, error) {
	data := make([]byte, length)
	if n, err := src.ReadAt(data, at); int64(n) < length {
		return 0, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	for from := 0; from < len(data); from += block {
		part := data[from:min(from+block, len(data))]
		if bytes.Equal(part, zeros[:len(part)]) {
			continue
		}
		if _, err := dst.WriteAt(part, at+int64(from)); err != nil {
			return 0, err
		}
	}
	return length, nil
}

// block is the smallest hole, in bytes: the cluster size of most images.
const block = 64 << 10

var zeros [block]byte
