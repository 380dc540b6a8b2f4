package vmnet

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/netdump"
)

// A Device is something of a job's network that exists on this node.
type Device struct {
	ID   journal.ID
	Kind string // "table" or the kind of the link: "bridge", "vxlan", "tuntap"
	Name string

	// Unmarked is a link with the name of one of ours, but without an alias: a
	// crash came between making and marking it. The ID's Restart is not known.
	Unmarked bool

	link  netlink.Link
	table *nftables.Table
}

// of reports whether the device is id's, as far as can be known.
func (d Device) of(id journal.ID) bool {
	return d.ID == id || d.Unmarked && d.ID.Job == id.Job
}

// List returns what exists of all jobs' networks on this node.
func List(ctx context.Context) ([]Device, error) {
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

func listLinks() ([]Device, error) {
	links, err := netdump.Links()
	if err != nil {
		return nil, err
	}
	var devices []Device
	for _, link := range links {
		attrs := link.Attrs()
		d := Device{Kind: link.Type(), Name: attrs.Name, link: link}
		if id, err := parseAlias(attrs.Alias); err == nil {
			d.ID = id
		} else if job, ok := jobOf(attrs.Name); ok && attrs.Alias == "" {
			d.ID, d.Unmarked = journal.ID{Job: job}, true
		} else {
			continue
		}
		devices = append(devices, d)
	}
	return devices, nil
}

func listTables() ([]Device, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return nil, err
	}
	var devices []Device
	for _, t := range tables {
		if id, err := parseTable(t.Name); err == nil {
			devices = append(devices, Device{ID: id, Kind: "table", Name: t.Name, table: t})
		}
	}
	return devices, nil
}

// Delete removes everything of the job's network from this node. What is not
// there is not missed; what could not be removed is in the error, and the rest
// is removed nevertheless. The links go before the filters.
func Delete(ctx context.Context, id journal.ID) error {
	devices, err := List(ctx)
	if err != nil {
		return fmt.Errorf("delete network of job %s: %w", id, err)
	}
	var errs []error
	for _, d := range devices {
		if !d.of(id) {
			continue
		}
		if err := d.delete(); err != nil {
			errs = append(errs, fmt.Errorf("delete %s %s of job %s: %w", d.Kind, d.Name, id, err))
		}
	}
	return errors.Join(errs...)
}

func (d Device) delete() error {
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
