package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images/cache"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/sparse"
)

// An Outcome is the result of staging an image.
type Outcome struct {
	How    How
	Copied int64         // bytes, by this job
	Waited time.Duration // for other jobs that were copying
	Why    string        // why the image is used where it lies although it should be copied
}

// How is where the VMs of a job read an image, and how it got there.
type How string

// The values of How.
const (
	Found  How = "found"  // a copy was on the node already
	Waited How = "waited" // another job was copying it
	Copied How = "copied" // this job has copied it to the node
	Direct How = "direct" // it is used where it lies
	Own    How = "copy"   // each VM has a copy of its own
)

// String is a line for people.
func (o Outcome) String() string {
	switch {
	case o.Why != "":
		return "used where it lies: " + o.Why
	case o.How == Copied:
		return fmt.Sprintf("copied to the node, %d MiB", mib(o.Copied))
	case o.How == Waited:
		return fmt.Sprintf("copied to the node by another job, waited %.1f s", o.Waited.Seconds())
	case o.How == Own:
		return "copied for each VM"
	case o.How == Found:
		return "on the node already"
	}
	return "used where it lies"
}

func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// Cache returns the cache of a node.
func Cache(cfg config.Config, node string) *cache.Cache {
	return cache.Open(cfg.ImageCache(node), cfg.Images.CacheSize.MiB()<<20)
}

// A Staging brings an image to a node, for one job.
type Staging struct {
	Cache  *cache.Cache
	Site   config.Images
	Owner  owner.Owner
	Holder string       // the job that holds the copies; see [cache.Cache.Release]
	Say    func(string) // gets a line about the progress from time to time
}

// Stage returns the image at path with the paths of copies on the node's own disk in place
// of its own. It opens the files with the owner's rights even if copies exist. All users
// share a copy of a catalogue image if every user can read the image. Every other copy
// belongs to the owner alone.
//
// If the image cannot be copied, for example because the disk is full, this is not an
// error: the image is used where it lies, and the Outcome says why.
func (s Staging) Stage(ctx context.Context, path string, image Info) (Info, Outcome, error) {
	files, err := openAll(ctx, s.Owner, image.Layers())
	defer closeAll(files)
	if err != nil {
		return Info{}, Outcome{}, err
	}
	if s.local(files) {
		return image, Outcome{How: Direct}, nil
	}
	staged, outcome, err := s.copy(ctx, files, s.owners(ctx, path, image), image)
	if ctx.Err() != nil {
		return Info{}, Outcome{}, context.Cause(ctx)
	}
	if err != nil {
		return image, Outcome{How: Direct, Why: err.Error()}, s.Cache.Release(s.Holder)
	}
	return staged, outcome, nil
}

// Layers are the image's files, the top one first.
func (i Info) Layers() []Layer { return append([]Layer{i.Layer}, i.Backing...) }

// openAll opens files with the owner's rights. The caller closes those that are open, even
// after an error.
func openAll(ctx context.Context, as owner.Owner, layers []Layer) (files []*os.File, err error) {
	for _, layer := range layers {
		file, _, err := open(ctx, as, "image", layer.Path)
		if err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// local reports whether the image lies on the same file system as the cache.
func (s Staging) local(files []*os.File) bool {
	return !slices.ContainsFunc(files, func(f *os.File) bool {
		beside, err := s.Cache.Beside(f)
		return err != nil || !beside
	})
}

// owners decides to whom the copy of each layer belongs. The layers below a catalogue image
// count as the catalogue's too.
func (s Staging) owners(ctx context.Context, path string, image Info) []cache.Whose {
	var owners []cache.Whose
	listed := InCatalogue(s.Site, path)
	for _, layer := range image.Layers() {
		whose := cache.Whose{UID: int(s.Owner.UID), GID: int(s.Owner.GID)}
		listed = listed || InCatalogue(s.Site, layer.Path)
		if listed && public(ctx, layer) {
			whose = cache.Everybody
		}
		owners = append(owners, whose)
	}
	return owners
}

// public reports whether every user may read a layer.
func public(ctx context.Context, layer Layer) bool {
	file, _, err := open(ctx, owner.Nobody, "image", layer.Path)
	if err != nil {
		return false
	}
	_ = file.Close()
	return true
}

// copy gets the copies of all layers. It begins with the lowest, since each copy names the
// one below it.
func (s Staging) copy(ctx context.Context, files []*os.File, owners []cache.Whose, image Info) (Info, Outcome, error) {
	staged, outcome := image, Outcome{How: Found}
	staged.Backing = slices.Clone(image.Backing)
	var below []cache.Copy
	for i := len(files) - 1; i >= 0; i-- {
		got, err := s.Cache.Get(ctx, cache.Source{
			File: files[i], Path: image.Layers()[i].Path, Owner: owners[i], Below: below, Finish: finish(len(below)),
		}, s.Holder, s.progress)
		if err != nil {
			return Info{}, Outcome{}, err
		}
		outcome = outcome.plus(got)
		below = append([]cache.Copy{got}, below...)
		staged.setPath(i, got.Path)
	}
	return staged, outcome, nil
}

// setPath sets the path of one layer; 0 is the top.
func (i *Info) setPath(layer int, path string) {
	if layer == 0 {
		i.Path = path
	} else {
		i.Backing[layer-1].Path = path
	}
}

func (o Outcome) plus(got cache.Copy) Outcome {
	o.Copied += got.Copied
	o.Waited += got.Waited
	switch {
	case got.Made:
		o.How = Copied
	case got.Waited > 0 && o.How != Copied:
		o.How = Waited
	}
	return o
}

// finish returns the function that makes a copy name the copy below it.
func finish(below int) func(*os.File) error {
	if below == 0 {
		return nil
	}
	return func(copied *os.File) error { return rebase(copied, cache.Name(below-1)) }
}

func (s Staging) progress(p cache.Progress) {
	who := "copied"
	if p.Waiting {
		who = "another job has copied"
	}
	s.Say(fmt.Sprintf("%s %d of %d MiB to the node", who, p.Done>>20, mib(p.Total)))
}

// CopyTo copies the whole image for one VM into dir, and returns the copy. The files belong
// to the owner.
func CopyTo(ctx context.Context, dir string, image Info, as owner.Owner) (Info, error) {
	files, err := openAll(ctx, as, image.Layers())
	defer closeAll(files)
	if err != nil {
		return Info{}, err
	}
	image.Backing = slices.Clone(image.Backing)
	for i, file := range files {
		below := len(files) - 1 - i
		path := filepath.Join(dir, cache.Name(below))
		if err := copyFile(ctx, path, file, finish(below), as); err != nil {
			return Info{}, fmt.Errorf("copy %s: %w", printable(file.Name()), err)
		}
		image.setPath(i, path)
	}
	return image, nil
}

func copyFile(ctx context.Context, path string, from *os.File, finish func(*os.File) error, as owner.Owner) error {
	to, err := createFor(path, as)
	if err != nil {
		return err
	}
	_, err = sparse.Copy(ctx, to, from, func(int64) {})
	if err == nil && finish != nil {
		err = finish(to)
	}
	return errors.Join(err, to.Close())
}
