// Package images turns the image that a user names into the disks of a VM.
//
// [Resolve] finds the file. [Inspect] decides whether it can and may be used.
// [Staging.Stage] copies it to the node's own disk, once for all jobs that use it (package
// cache). [CreateOverlay] makes the VM's own disk on top of it, so the image never
// changes. [WriteSeed] makes the small disk that brings slurmv-guest and the
// user's cloud-init data into a VM.
//
// Users write images, so nothing in an image is trusted: every file that it names is
// checked before a program opens it. A user's path is opened with that user's rights
// (package owner), so the kernel decides what they may read. Users can still change their
// image afterwards, but gain nothing by it: QEMU runs with their rights too.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// The formats of images and of the files that they are based on.
const (
	QCOW2 = "qcow2"
	Raw   = "raw"
)

// A Layer is one file of an image.
type Layer struct {
	Path   string // absolute, without symbolic links
	Format string
}

// Info describes an image that can be used.
type Info struct {
	Layer
	VirtualBytes int64   // of the disk that a VM sees
	Backing      []Layer // what the image is based on, nearest first

	Firmware config.Firmware // what boots it, by its partition table: BIOS or UEFI
}

// VirtualMiB returns the size of the disk, rounded up.
func (i Info) VirtualMiB() int64 { return mib(i.VirtualBytes) }

// An Error says in one sentence why a user's file cannot be used.
type Error struct {
	What   string // "image" if empty
	Path   string
	Reason string
	Err    error // the cause, if it is one of the system's
}

func (e *Error) Error() string {
	return cmp.Or(e.What, "image") + " " + printable(e.Path) + " " + e.Reason
}

func (e *Error) Unwrap() error { return e.Err }

// printable quotes a path with characters that a terminal would obey.
func printable(path string) string {
	if quoted := strconv.Quote(path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}

// Resolve returns the path of an image from the value of --vm-image: a name in the site's
// catalogue or an absolute path.
func Resolve(cfg config.Config, image string) (string, error) {
	if filepath.IsAbs(image) {
		return filepath.Clean(image), nil
	}
	if entry, ok := cfg.Images.Catalogue[image]; ok {
		return entry.Path, nil
	}
	if image == "" {
		return "", fmt.Errorf("no image: give one with --vm-image (catalogue: %s)", config.Names(cfg.Images.Catalogue))
	}
	return "", fmt.Errorf("%s is not in the site's catalogue (%s) and no absolute path", config.Quote(image), config.Names(cfg.Images.Catalogue))
}

// maxLayers bounds the length of a chain of backing files, because QEMU opens them all.
const maxLayers = 16

// Inspect looks at the image at path with the user's rights, and describes it. The error is
// an [*Error] if it is the image's fault.
//
// Every file of the image must lie in the site's image directories, unless the image is in
// the site's catalogue.
func Inspect(ctx context.Context, site config.Images, path string, as owner.Owner) (Info, error) {
	info, err := readLayers(ctx, allowedDirs(site, path), path, as)
	if err != nil {
		return Info{}, err
	}
	start, err := readWithQEMU(ctx, info.Layer, as)
	if err != nil {
		return Info{}, err
	}
	info.Firmware = firmwareOf(start)
	return info, nil
}

// readLayers follows the image from file to file. Each file is opened with the user's
// rights.
func readLayers(ctx context.Context, dirs []string, path string, as owner.Owner) (info Info, err error) {
	next, format := path, ""
	for depth := range maxLayers {
		layer, head, err := readLayer(ctx, dirs, next, format, as)
		if err != nil {
			return Info{}, blame(path, next, err)
		}
		if depth == 0 {
			info.Layer, info.VirtualBytes = layer, head.size
		} else {
			info.Backing = append(info.Backing, layer)
		}
		if head.backing == "" {
			return info, nil
		}
		if next, err = backingPath(layer.Path, head.backing); err != nil {
			return Info{}, blame(path, layer.Path, err)
		}
		format = head.backingFormat
	}
	return Info{}, &Error{Path: path, Reason: fmt.Sprintf("is based on a chain of more than %d files", maxLayers-1)}
}

// readLayer opens one file. format is the file's format as the layer above it says, "" if
// it does not say.
func readLayer(ctx context.Context, dirs []string, path, format string, as owner.Owner) (Layer, header, error) {
	file, real, err := open(ctx, as, "image", path)
	if err != nil {
		return Layer{}, header{}, err
	}
	defer file.Close()
	if !within(dirs, real) {
		return Layer{}, header{}, &Error{Path: path, Reason: "is not in a directory that the site allows images in: " + strings.Join(dirs, ", ")}
	}
	info, err := file.Stat()
	if err != nil {
		return Layer{}, header{}, err
	}
	head, err := readHeader(file, info.Size(), format)
	if err != nil {
		return Layer{}, header{}, &Error{Path: path, Reason: err.Error()}
	}
	return Layer{Path: real, Format: head.format}, head, nil
}

// blame makes an error about a backing file name the image that the user asked for.
func blame(image, file string, err error) error {
	var e *Error
	if errors.As(err, &e) && image != file {
		return &Error{Path: image, Reason: "is based on " + printable(e.Path) + ", which " + e.Reason, Err: e.Err}
	}
	return err
}

// backingPath returns the path of the backing file of the image at path. It refuses URLs
// and JSON descriptions: QEMU would accept them, and an image could reach hosts and devices
// with them.
func backingPath(path, backing string) (string, error) {
	before, _, colon := strings.Cut(backing, ":")
	if colon && !strings.Contains(before, "/") {
		return "", &Error{Path: path, Reason: "is based on " + strconv.Quote(backing) + ", which is not a file"}
	}
	if filepath.IsAbs(backing) {
		return filepath.Clean(backing), nil
	}
	return filepath.Join(filepath.Dir(path), backing), nil
}

// allowedDirs returns the directories in which the files of the image at path
// may lie, without symbolic links.
func allowedDirs(site config.Images, path string) []string {
	if InCatalogue(site, path) {
		return []string{"/"}
	}
	var dirs []string
	for _, dir := range site.Directories {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// InCatalogue reports whether path is an image that the site names.
func InCatalogue(site config.Images, path string) bool {
	for _, image := range site.Catalogue {
		if image.Path == path {
			return true
		}
	}
	return false
}

func within(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return dir == "/" || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	})
}

// CreateOverlay makes the qcow2 disk of a VM at path, on top of the image base. The disk
// has sizeMiB, or the size of the image if sizeMiB is 0. The file belongs to as, with mode
// 0600, and must not exist. Its directory may be root's, but as must be able to pass
// through it.
func CreateOverlay(ctx context.Context, base Info, path string, sizeMiB int64, as owner.Owner) error {
	size, err := overlaySize(base, sizeMiB)
	if err != nil {
		return err
	}
	file, err := createFor(path, as)
	if err != nil {
		return fmt.Errorf("create overlay: %w", err)
	}
	_ = file.Close()
	err = runQEMUImg(ctx, as, nil, "create", "-q", "-f", QCOW2,
		"-u", "-F", base.Format, "-b", base.Path, // -u: the base is inspected already
		path, strconv.FormatInt(size, 10))
	if err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("create overlay %s: %w", printable(path), err)
	}
	return nil
}

// overlaySize returns the size of an overlay in bytes.
func overlaySize(base Info, sizeMiB int64) (int64, error) {
	switch {
	case sizeMiB == 0:
		return base.VirtualBytes, nil
	case sizeMiB < 0 || sizeMiB > maxVirtual>>20:
		return 0, fmt.Errorf("disk size of %d MiB is not possible", sizeMiB)
	case sizeMiB<<20 < base.VirtualBytes:
		return 0, &Error{Path: base.Path, Reason: fmt.Sprintf(
			"has a disk of %d MiB, and --disk-size asks for less: %d MiB; ask for %[1]d or more, or leave it out", base.VirtualMiB(), sizeMiB)}
	}
	return sizeMiB << 20, nil
}
