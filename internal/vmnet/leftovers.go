package vmnet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/netdump"
	"github.com/slurm-v/slurm-v/journal"
)

// A device is a part of a job's network that exists on this node.
type device struct {
	ID   journal.ID
	Kind string // "table" or the kind of the link: "bridge", "vxlan", "tuntap", "veth"
	Name string

	// Unmarked means that the link has one of our names but no alias: a crash came
	// between making and marking it. The Restart of its ID is then unknown.
	Unmarked bool

	link  netlink.Link
	table *nftables.Table
}

// of reports whether the device belongs to id, as far as can be known.
func (d device) of(id journal.ID) bool {
	return d.ID == id || d.Unmarked && d.ID.Job == id.Job
}

// allDevices returns the existing devices of all jobs' networks on this node.
func allDevices(ctx context.Context) ([]device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	links, err := listLinks()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	tables, err := listTables()
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	return append(links, tables...), nil
}

func listLinks() ([]device, error) {
	links, err := netdump.Links()
	if err != nil {
		return nil, err
	}
	var devices []device
	for _, link := range links {
		attrs := link.Attrs()
		d := device{Kind: link.Type(), Name: attrs.Name, link: link}
		if id, err := parseAlias(attrs.Alias); err == nil {
			d.ID = id
		} else if job, ok := JobOf(attrs.Name); ok && attrs.Alias == "" {
			d.ID, d.Unmarked = journal.ID{Job: job}, true
		} else {
			continue
		}
		devices = append(devices, d)
	}
	return devices, nil
}

func listTables() ([]device, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return nil, err
	}
	var devices []device
	for _, t := range tables {
		if id, err := parseTable(t.Name); err == nil {
			devices = append(devices, device{ID: id, Kind: "table", Name: t.Name, table: t})
		}
	}
	return devices, nil
}

// Delete removes everything of the job's network from this node. Missing parts are not an
// error. If a part cannot be removed, Delete removes the others and returns the error. It
// removes links before filters.
func Delete(ctx context.Context, id journal.ID) error {
	devices, err := allDevices(ctx)
	if err != nil {
		return fmt.Errorf("delete network of job %s: %w", id, err)
	}
	devices = slices.DeleteFunc(devices, func(d device) bool { return !d.of(id) })
	if err := deleteLinks(id, devices); err == nil {
		devices = slices.DeleteFunc(devices, func(d device) bool { return d.link != nil })
	}
	var errs []error
	for _, d := range devices {
		if err := d.delete(); err != nil {
			errs = append(errs, fmt.Errorf("delete %s %s of job %s: %w", d.Kind, d.Name, id, err))
		}
	}
	return errors.Join(errs...)
}

// deleteLinks removes the links among the devices, all or none. After removing a link,
// the kernel waits some 20 ms until nobody uses it any more. For a group of links it
// waits only once, so deleteLinks puts them into one group.
func deleteLinks(id journal.ID, devices []device) error {
	group := linkGroup(id.Job)
	if err := checkUnused(group); err != nil {
		return err
	}
	for _, d := range devices {
		if d.link == nil {
			continue
		}
		if err := netlink.LinkSetGroup(d.link, group); err != nil {
			return err
		}
	}
	return deleteGroup(group)
}

// linkGroup returns the number of the group in which a job's links are removed.
func linkGroup(job uint32) int { return 1<<30 | int(job&(1<<jobBits-1)) }

// checkUnused returns an error if the group contains a link that belongs to no job.
func checkUnused(group int) error {
	links, err := netdump.Links()
	for _, link := range links {
		a := link.Attrs()
		if _, ours := JobOf(a.Name); !ours && a.Group == uint32(group) {
			return fmt.Errorf("link %s is in group %d", a.Name, group)
		}
	}
	return err
}

func deleteGroup(group int) error {
	request := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(uint32(group))))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func (d device) delete() error {
	var err error
	if d.link != nil {
		err = netlink.LinkDel(d.link)
	} else {
		err = deleteTable(d.table)
	}
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		return nil // another reclaim was faster
	}
	return err
}

func deleteTable(table *nftables.Table) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	conn.DelTable(table)
	return conn.Flush()
}
