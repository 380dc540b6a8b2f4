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

// A FileIdentity tells whether a file is still the same, without reading it.
type FileIdentity struct {
	Path string `json:"path"`
	cache.Identity
}

// Identities returns the identities of the image and of all files that it is based on. The
// owner must be able to open them.
func (i Info) Identities(ctx context.Context, as owner.Owner) (all []FileIdentity, err error) {
	files, err := openAll(ctx, as, i.Layers())
	defer closeAll(files)
	for k, file := range files {
		is, lost := cache.Identify(file)
		all, err = append(all, FileIdentity{i.Layers()[k].Path, is}), errors.Join(err, lost)
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

// CopyFor copies a small file to path. The copy belongs to as, with mode 0600. The
// directory may be the user's, so CopyFor fails if path exists.
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
