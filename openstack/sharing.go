package openstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
)

// Jobs whose files have the same content share one upload. Each holds the image by its mark, a tag, and the last one
// deletes it. The image is found by another tag, made of content and properties. It gets that tag when glance has
// exactly this content: another user's VMs may boot from it. The job of that user has read the same content as that
// user, so it gets nothing that it could not read.
//
// glance changes one tag at a time, and cannot delete an image on a condition. So whoever deletes one takes away what it
// is found by first, and then looks for holders once more; whoever joins one becomes a holder first, and then looks
// whether it can still be found. Nobody puts that tag back.

// sharedPrefix is what the tag begins with by which jobs of any cluster find an image.
const sharedPrefix = "slurm-v-image:"

// sharedTag is what jobs of a cluster find an image by.
func sharedTag(m mark, i Image, sum string) string {
	all := sha256.Sum256(fmt.Appendln(nil, sum, i.Format, i.Options)) // fmt sorts the options
	return sharedPrefix + m.label() + ":" + hex.EncodeToString(all[:])
}

func isShared(tag string) bool { return strings.HasPrefix(tag, sharedPrefix) }

func isHolder(tag string) bool { return strings.HasPrefix(tag, markOfAll+":") }

// obtain returns an image with the content of a file: that of other jobs, or an upload.
func (g glance) obtain(ctx context.Context, m mark, i Image) (id string, err error) {
	sum, err := digestOf(ctx, i)
	if err != nil {
		return "", fmt.Errorf("read image %s: %w", i.Path, err)
	}
	tag := sharedTag(m, i, sum)
	if id, err = g.join(ctx, m, tag); err != nil || id != "" {
		return id, explain("look for the content of "+i.Path+" in glance", err)
	}
	id, sent, err := g.upload(ctx, m, i)
	if err == nil && sent == sum {
		_ = g.addTag(ctx, id, tag) // without it, the image is this job's alone
	}
	return id, err
}

// digestOf reads a file. It gives up one that stands still, as an upload does.
func digestOf(ctx context.Context, i Image) (sum string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	data := newBody(i)
	go data.watch(ctx, stop)
	done := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, data, make([]byte, mib))
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if sum = data.digest(); err == nil && sum == "" {
		err = errors.New("it has become shorter meanwhile")
	}
	return sum, data.explain(err)
}

// join returns an image that other jobs share, and that the job holds from now on; "" is none.
func (g glance) join(ctx context.Context, m mark, tag string) (id string, err error) {
	err = try(ctx, func() error {
		shared, err := g.own(ctx, images.ListOpts{Tags: []string{tag}, Status: images.ImageStatusActive})
		for _, i := range shared {
			if err == nil && id == "" {
				id, err = g.joinOne(ctx, m, i.ID, tag)
			}
		}
		return err
	})
	return id, err
}

// joinOne holds one image, if it is not being deleted. An image can have so many tags.
func (g glance) joinOne(ctx context.Context, m mark, id, tag string) (string, error) {
	if err := g.putTag(ctx, id, string(m)); isGone(err) || gophercloud.ResponseCodeIs(err, http.StatusRequestEntityTooLarge) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	i, err := images.Get(ctx, g.api, id).Extract()
	switch {
	case isGone(err):
		return "", nil
	case err != nil:
		return "", err
	case i.Status != images.ImageStatusActive || !slices.Contains(i.Tags, tag):
		return "", nil // its mark stays there: the job's end looks whether anything is left
	}
	return id, nil
}

// release gives up the job's hold on an image, and deletes it if no other job has one.
func (g glance) release(ctx context.Context, m mark, i images.Image) error {
	if !slices.ContainsFunc(i.Tags, func(tag string) bool { return isShared(tag) || isHolder(tag) && tag != string(m) }) {
		return images.Delete(ctx, g.api, i.ID).ExtractErr()
	}
	if err := g.deleteTag(ctx, i.ID, string(m)); err != nil {
		return err
	}
	return g.deleteUnheld(ctx, i.ID)
}

// deleteUnheld deletes an image that no job holds.
func (g glance) deleteUnheld(ctx context.Context, id string) error {
	i, err := images.Get(ctx, g.api, id).Extract()
	if err != nil || slices.ContainsFunc(i.Tags, isHolder) {
		return err
	}
	for _, tag := range i.Tags {
		if isShared(tag) {
			if err := g.deleteTag(ctx, id, tag); err != nil {
				return err
			}
		}
	}
	i, err = images.Get(ctx, g.api, id).Extract()
	if err != nil || slices.ContainsFunc(i.Tags, isHolder) { // a job has joined before the tag was gone
		return err
	}
	return images.Delete(ctx, g.api, id).ExtractErr()
}

// DeleteUnheldImages deletes the images of the cluster that no job holds: whoever gave one up last has died in the midst
// of that.
func (c *Cloud) DeleteUnheldImages(ctx context.Context) error {
	unheld := func() ([]images.Image, error) {
		all, err := c.glance.own(ctx, images.ListOpts{Owner: c.glance.project})
		return slices.DeleteFunc(all, func(i images.Image) bool {
			return slices.ContainsFunc(i.Tags, isHolder) || !strings.HasPrefix(i.Name, string(c.mark("")))
		}), err
	}
	return explain("delete images that no job uses", removeAll(ctx, unheld, func(i images.Image) error { return c.glance.deleteUnheld(ctx, i.ID) }))
}

// addTag is putTag, also of a glance that is away for a while.
func (g glance) addTag(ctx context.Context, id, tag string) error {
	return try(ctx, func() error { return g.putTag(ctx, id, tag) })
}

func (g glance) putTag(ctx context.Context, id, tag string) error {
	response, err := g.api.Put(ctx, g.tagURL(id, tag), nil, nil, &gophercloud.RequestOpts{OkCodes: []int{http.StatusNoContent}})
	if response != nil {
		_ = response.Body.Close()
	}
	return err
}

// deleteTag is done, too, if the tag is not there.
func (g glance) deleteTag(ctx context.Context, id, tag string) error {
	response, err := g.api.Delete(ctx, g.tagURL(id, tag), nil)
	if response != nil {
		_ = response.Body.Close()
	}
	if isGone(err) {
		return nil
	}
	return err
}

func (g glance) tagURL(id, tag string) string { return g.api.ServiceURL("images", id, "tags", tag) }
