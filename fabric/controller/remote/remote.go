// Package remote gives a controller the managers that are asked by HTTP: UFM and the
// Slingshot fabric manager. It is apart from package controller because the program that
// slurmctld waits for starts sooner without HTTP and TLS.
package remote

import (
	"context"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/fabric/manager"
	"github.com/slurm-v/slurm-v/fabric/ufm"
	"github.com/slurm-v/slurm-v/journal"
)

// Set gives the controller those managers that its site names.
func Set(c *controller.Controller) error {
	if site := c.Site.PKey; site.UFM != "" {
		client, err := ufm.New(ufm.Options{URL: site.UFM, TokenFile: site.UFMTokenFile, CAFile: site.UFMCAFile})
		if err != nil {
			return err
		}
		c.Subnet = subnet{client}
	}
	if site := c.Site.Collectives; site.URL != "" {
		client, err := manager.New(manager.Options{
			URL: site.URL, TokenFile: site.TokenFile, CAFile: site.CAFile,
			Timeout: time.Duration(site.Timeout) * time.Second, Addrs: site.AddrsPerJob, MinNodes: site.MinNodes,
		})
		if err != nil {
			return err
		}
		c.Fabric = multicast{client}
	}
	return nil
}

// subnet is UFM.
type subnet struct{ *ufm.Client }

// Join implements [controller.SubnetManager].
func (s subnet) Join(ctx context.Context, pkey fabric.Tag, ports []fabric.GUID) error {
	if err := s.Set(ctx, pkey, ports); err != nil {
		return err
	}
	return s.Confirm(ctx, pkey, ports)
}

// Leave implements [controller.SubnetManager].
func (s subnet) Leave(ctx context.Context, pkey fabric.Tag, ports []fabric.GUID) error {
	if err := s.Remove(ctx, pkey, ports); err != nil {
		return err
	}
	return s.ConfirmGone(ctx, pkey, ports)
}

// multicast is a Slingshot fabric manager.
type multicast struct{ *manager.Client }

// Session implements [controller.FabricManager].
func (multicast) Session(cluster string, job journal.ID) string { return manager.Session(cluster, job) }

// Stale implements [controller.FabricManager].
func (multicast) Stale(cluster string, listed []string, live []journal.ID) []string {
	return manager.Stale(cluster, listed, live)
}

// Missing implements [controller.FabricManager].
func (multicast) Missing(listed []string, live []fabric.Reservation) []journal.ID {
	return manager.Missing(listed, live)
}
