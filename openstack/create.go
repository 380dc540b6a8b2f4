package openstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"golang.org/x/sync/errgroup"
)

// A Request is what one job wants of the cloud.
type Request struct {
	Job       string // its id, such as 4217.0
	Image     Image
	Flavor    string // name of a flavor of the site's; "" makes one for the job
	VCPUs     int
	MemoryMiB int64
	DiskMiB   int64  // of the root disk; at least the image's size
	Network   string // name or id, of the VMs' NICs
	VFNetwork string // name or id, of their virtual functions
	Zone      string // availability zone; "" leaves it to nova
	Servers   []Server
}

// A Server is one VM.
type Server struct {
	Name string // see [Names]; it begins with slurmv-JOB-
	Host string // of nova, on which it runs
	MAC  string
	VFs  []VF
}

// A VF is a virtual function of a server.
type VF struct {
	MAC string
	Rates
}

// An Image is what the VMs boot from: an image of the cloud's, or a file of the node's.
type Image struct {
	Name    string            // in glance; "" is the file
	Path    string            // of the file, for messages
	File    io.ReaderAt       // read again if an upload breaks off
	Size    int64             // of the file, in bytes; what is behind is not sent
	Format  string            // of the file, such as qcow2
	Options map[string]string // properties of the file's image
}

// requestsAtOnce bounds how many requests the cloud gets at once.
const requestsAtOnce = 16

// Create asks the cloud for everything of a job. When it returns, all servers are requested,
// and [Cloud.Await] tells when they run. If it fails, [Cloud.Delete] removes what it made.
//
// If one request fails, Create awaits the answers of the others: the cloud could carry out a
// request that is given up after Delete has looked.
func (c *Cloud) Create(ctx context.Context, r Request) error {
	m := c.mark(r.Job)
	image, flavor, networks, err := c.prepare(ctx, m, r)
	if err != nil {
		return err
	}
	var each errgroup.Group
	each.SetLimit(requestsAtOnce)
	for _, s := range r.Servers {
		each.Go(func() error {
			ports, err := c.neutron.createPorts(ctx, m, networks, s)
			if err != nil {
				return err
			}
			return c.requestServer(ctx, m, wanted{Server: s, image: image, flavor: flavor, ports: ports, zone: r.Zone})
		})
	}
	return each.Wait()
}

// Await waits until want servers of the job run. If one cannot, it says why. What nova has lost, it asks for once more.
func (c *Cloud) Await(ctx context.Context, job string, want int) error {
	for began := time.Now(); ; {
		all, err := c.nova.listAgain(ctx, c.mark(job))
		if err != nil {
			return explain("list the servers of job "+job, err)
		}
		active, again, err := c.nova.countActive(ctx, all)
		if err == nil {
			err = c.replace(ctx, c.mark(job), again)
		}
		if err != nil || active == want {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("OpenStack: %d of %d servers run, and these do not: %s: %w", active, want, names(inactive(all)), context.Cause(ctx))
		case <-time.After(untilNextLook(time.Since(began))):
		}
	}
}

// inactive returns the servers that do not run.
func inactive(all []servers.Server) []servers.Server {
	return slices.DeleteFunc(slices.Clone(all), func(s servers.Server) bool { return s.Status == "ACTIVE" })
}

// HasImage reports whether the cloud has an active image of that name.
func (c *Cloud) HasImage(ctx context.Context, name string) (bool, error) {
	var found []images.Image
	err := try(ctx, func() (err error) {
		found, err = c.glance.usable(ctx, images.ListOpts{Name: name, Status: images.ImageStatusActive})
		return err
	})
	return len(found) > 0, explain("look for image "+name, err)
}

// networksOf are the ids of a job's networks, and of the policies of its virtual functions.
type networksOf struct {
	nic, vf  string
	policies map[Rates]string
}

// prepare makes or finds what the servers share, all at once, if nova has the job's hosts. An upload comes last: it takes
// minutes, and is in vain if anything else is wrong.
func (c *Cloud) prepare(ctx context.Context, m mark, r Request) (image, flavor string, networks networksOf, err error) {
	if err := c.nova.checkHosts(ctx, r); err != nil {
		return "", "", networks, err
	}
	var each errgroup.Group
	each.Go(func() (err error) {
		if r.Image.Name == "" {
			return errors.Join(c.nova.checkRoom(ctx, r), c.neutron.checkRoom(ctx, r))
		}
		image, err = c.glance.findImage(ctx, r.Image.Name)
		return err
	})
	each.Go(func() (err error) {
		flavor, err = c.nova.getFlavor(ctx, m, r)
		return err
	})
	each.Go(func() (err error) {
		networks.nic, err = c.neutron.findNetwork(ctx, r.Network)
		return err
	})
	each.Go(func() (err error) {
		if r.VFNetwork != "" {
			networks.vf, err = c.neutron.findNetwork(ctx, r.VFNetwork)
		}
		return err
	})
	each.Go(func() (err error) {
		networks.policies, err = c.neutron.getPolicies(ctx, m, r)
		return err
	})
	if err := each.Wait(); err != nil || r.Image.Name != "" {
		return image, flavor, networks, err
	}
	image, err = c.glance.obtain(ctx, m, r.Image)
	return image, flavor, networks, err
}

// A mark is what everything of a job carries in the cloud: metadata and a tag of servers, a tag
// of the images that it holds, the description of ports and QoS policies, and with the project the name of a flavor. It has neither comma nor slash,
// which nova's tags must not have.
type mark string

// markKey is the name of the mark in the metadata of servers.
const markKey = "slurm-v"

func (m mark) job() string { return string(m[strings.LastIndexByte(string(m), ':')+1:]) }

func (m mark) label() string {
	return strings.TrimSuffix(strings.TrimPrefix(string(m), markOfAll+":"), ":"+m.job())
}

const markOfAll = "slurm-v"

func (c *Cloud) mark(job string) mark { return mark(fmt.Sprintf("%s:%s:%s", markOfAll, c.label, job)) }
