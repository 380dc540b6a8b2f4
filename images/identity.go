package images

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/images/cache"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// A FileIdentity tells whether a file is still the one that it was, without reading it.
type FileIdentity struct {
	Path string `json:"path"`
	cache.Identity
}

// Identities returns those of the image and of all that it is based on. The owner has
// to reach the files.
func (i Info) Identities(ctx context.Context, as owner.Owner) (all []FileIdentity, err error) {
	files, err := openAll(ctx, as, i.layers())
	defer closeAll(files)
	for k, file := range files {
		is, lost := cache.Identify(file)
		all, err = append(all, FileIdentity{i.layers()[k].Path, is}), errors.Join(err, lost)
	}
	if err != nil {
		return nil, fmt.Errorf("look at image %s: %w", printable(i.Path), err)
	}
	return all, nil
}

// Identify returns the identity of the file at path.
func Identify(path string) (FileIdentity, error) {
	file, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return FileIdentity{}, err
	}
	defer file.Close()
	is, err := cache.Identify(file)
	return FileIdentity{path, is}, err
}

// CopyFor makes a copy of a small file at path that is as's, 0600. Its directory may be
// his; nothing must be there yet.
func CopyFor(source, path string, as owner.Owner) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	file, err := createFor(path, as)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}
