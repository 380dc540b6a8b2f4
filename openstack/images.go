package openstack

import (
	"context"
	"fmt"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
)

// findImage returns the id of an image of the cloud's, the newest active one of its name.
func (g glance) findImage(ctx context.Context, name string) (id string, err error) {
	err = try(ctx, func() error {
		found, err := g.usable(ctx, images.ListOpts{Name: name, Sort: "created_at:desc"})
		if err == nil {
			id, err = newestActive(found, name)
		}
		return err
	})
	return id, explain("find image "+name, err)
}

// newestActive chooses of images of one name, the newest of which comes first.
func newestActive(all []images.Image, name string) (id string, err error) {
	active := slices.IndexFunc(all, func(i images.Image) bool { return i.Status == images.ImageStatusActive })
	switch {
	case len(all) == 0:
		return "", fmt.Errorf("there is no image %q", name)
	case active < 0:
		return "", fmt.Errorf("image %q is %s: VMs start from active ones only", name, all[0].Status)
	}
	return all[active].ID, nil
}

// upload makes an image of a file, and returns the digest of what it has sent; "" if it does not know.
func (g glance) upload(ctx context.Context, m mark, i Image) (id, sum string, err error) {
	id, sum, err = g.uploadAgain(ctx, m, i)
	return id, sum, explain("upload "+i.Path+" to glance", err)
}

// uploadAgain is an upload that is repeated. If it breaks off, it is begun anew. The patience for that begins then, since
// a large image may have been on its way for longer.
func (g glance) uploadAgain(ctx context.Context, m mark, i Image) (id, sum string, err error) {
	if id, err = g.createImage(ctx, m, i); err != nil {
		return "", "", err
	}
	sum, lost := g.send(ctx, id, i)
	if !isAway(lost) {
		return id, sum, lost
	}
	err = try(ctx, func() error {
		if id, err = g.uploaded(ctx, m, lost); err != nil || id != "" {
			return err
		}
		if id, err = g.createImage(ctx, m, i); err == nil {
			sum, lost = g.send(ctx, id, i)
			err = lost
		}
		return err
	})
	return id, sum, err
}

// uploaded returns the image of an upload whose answer was lost, if glance has all of it, and removes it otherwise: a
// glance that was killed takes it for ever to be coming. One that glance was too slow to store is waited for.
func (g glance) uploaded(ctx context.Context, m mark, lost error) (id string, err error) {
	its, err := g.uploadsOf(ctx, m)
	if err != nil {
		return "", err
	}
	for _, i := range its {
		if i.Status == images.ImageStatusActive {
			return i.ID, nil
		}
	}
	if isLate(lost) {
		return "", lost
	}
	return "", removeAll(ctx, func() ([]images.Image, error) { return its, nil },
		func(i images.Image) error { return images.Delete(ctx, g.api, i.ID).ExtractErr() })
}

// createImage makes an image without data.
func (g glance) createImage(ctx context.Context, m mark, i Image) (string, error) {
	return makeOnce(ctx,
		func() (string, error) { return g.findUpload(ctx, m) },
		func(ctx context.Context) (string, error) { return g.postImage(ctx, m, i) })
}

func (g glance) postImage(ctx context.Context, m mark, i Image) (string, error) {
	private := images.ImageVisibilityPrivate
	made, err := images.Create(ctx, g.api, images.CreateOpts{
		Name: string(m), Tags: []string{string(m)}, ContainerFormat: "bare", DiskFormat: i.Format,
		Visibility: &private, Properties: i.Options,
	}).Extract()
	if err != nil {
		return "", err
	}
	return made.ID, nil
}

func (g glance) findUpload(ctx context.Context, m mark) (string, error) {
	its, err := g.uploadsOf(ctx, m)
	if err != nil || len(its) == 0 {
		return "", err
	}
	return its[0].ID, nil
}

// usable returns the images that are public or the site's project's. An administrator sees those
// of every project, and anybody could call an image like one of the site's.
func (g glance) usable(ctx context.Context, which images.ListOpts) ([]images.Image, error) {
	all, err := g.images(ctx, which)
	return slices.DeleteFunc(all, func(i images.Image) bool {
		return i.Visibility != images.ImageVisibilityPublic && i.Owner != g.project
	}), err
}

// own returns the project's images. A cluster in another project may have a job of the same mark.
func (g glance) own(ctx context.Context, which images.ListOpts) ([]images.Image, error) {
	all, err := g.images(ctx, which)
	return slices.DeleteFunc(all, func(i images.Image) bool { return i.Owner != g.project }), err
}

func (g glance) images(ctx context.Context, which images.ListOpts) ([]images.Image, error) {
	pages, err := images.List(g.api, which).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return images.ExtractImages(pages)
}

// uploadsOf returns what the job has uploaded itself: the name is that of who did, and does not change.
func (g glance) uploadsOf(ctx context.Context, m mark) ([]images.Image, error) {
	its, err := g.imagesOf(ctx, m)
	return slices.DeleteFunc(its, func(i images.Image) bool { return i.Name != string(m) }), err
}

// imagesOf returns what the job holds.
func (g glance) imagesOf(ctx context.Context, m mark) ([]images.Image, error) {
	return g.own(ctx, images.ListOpts{Tags: []string{string(m)}})
}

func (g glance) deleteImages(ctx context.Context, m mark) error {
	return removeAll(ctx, func() ([]images.Image, error) { return g.imagesOf(ctx, m) },
		func(i images.Image) error { return g.release(ctx, m, i) })
}

func (g glance) markedImages(ctx context.Context) (marks []string, err error) {
	all, err := g.own(ctx, images.ListOpts{Owner: g.project})
	for _, i := range all {
		marks = append(marks, i.Tags...)
	}
	return marks, err
}
