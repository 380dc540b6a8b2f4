// Package sparse reads and copies files that have holes. A copy has the same holes,
// or shares its blocks with the file.
package sparse

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// NextData returns where the next data of file at or after offset at begins and ends, in
// bytes; from equals to if there is no more. A file system that does not know holes
// reports all as data. NextData moves the file's offset.
func NextData(file *os.File, at int64) (from, to int64, err error) {
	from, err = unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return 0, 0, nil
	}
	if err == nil {
		to, err = unix.Seek(int(file.Fd()), from, unix.SEEK_HOLE)
	}
	if err != nil {
		return 0, 0, &fs.PathError{Op: "seek", Path: file.Name(), Err: err}
	}
	return from, to, nil
}
