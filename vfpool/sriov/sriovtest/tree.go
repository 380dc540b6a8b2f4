package sriovtest

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// zeroMAC is the address of a VF that was not given one.
const zeroMAC = "00:00:00:00:00:00"

// zeroGUID is what the kernel reports of a VF that was not given one.
const zeroGUID = "00:00:00:00:00:00:00:00"

func (n *Node) build() error {
	err := firstError(
		n.write("", "sys/bus/pci/drivers_probe"),
		n.write("", "sys/bus/pci/drivers/vfio-pci/unbind"),
		os.MkdirAll(n.path("dev/vfio"), 0o755),
		os.MkdirAll(n.path("vfs"), 0o755),
		os.MkdirAll(n.path("sys/kernel/iommu_groups"), 0o755),
		os.MkdirAll(n.path("sys/bus/pci/devices"), 0o755),
		n.saveCards())
	for i, c := range n.cards {
		err = firstError(err, n.buildPF(c), n.buildVFs(c, 100*(i+1)))
	}
	return err
}

func (n *Node) saveCards() error {
	text, err := json.Marshal(n.cards)
	return firstError(err, n.write(string(text), "cards.json"))
}

func (n *Node) buildPF(c Card) error {
	dir := "sys/bus/pci/devices/" + c.PCI
	net := dir + "/net/" + c.Name
	kind, class := "1", "0x020000"
	if c.InfiniBand {
		kind, class = "32", "0x020700"
	}
	return firstError(
		n.write(class+"\n", dir, "class"),
		n.write(fmt.Sprintln(c.NUMA), dir, "numa_node"),
		n.write(fmt.Sprintln(c.TotalVFs), dir, "sriov_totalvfs"),
		n.write(fmt.Sprintln(c.VFs), dir, "sriov_numvfs"),
		n.write("1\n", dir, "sriov_drivers_autoprobe"),
		n.write("", "sys/bus/pci/drivers", c.Driver, "unbind"),
		n.link("../../drivers/"+c.Driver, dir, "driver"),
		n.write(kind+"\n", net, "type"),
		n.write("0\n", net, "dev_port"),
		n.buildLink(c, net),
		n.buildPort(c, dir+"/infiniband/mlx_0/ports/1"),
		n.buildTables(c))
}

// buildLink writes the link's files as the kernel does: a link that is down has no speed.
func (n *Node) buildLink(c Card, net string) error {
	if c.Down || c.InfiniBand {
		return firstError(n.write("down\n", net, "operstate"), n.write("-1\n", net, "speed"))
	}
	return firstError(n.write("up\n", net, "operstate"), n.write(fmt.Sprintln(c.Speed), net, "speed"))
}

func (n *Node) buildPort(c Card, port string) error {
	if !c.InfiniBand {
		return nil
	}
	state := "4: ACTIVE"
	if c.Down {
		state = "1: DOWN"
	}
	return firstError(n.write(state+"\n", port, "state"), n.write(fmt.Sprintf("%d Gb/sec (4X EDR)\n", c.Speed/1000), port, "rate"))
}

func (n *Node) buildVFs(c Card, group int) error {
	for i := range c.VFs {
		if !c.OneGroup || i == 0 {
			group++
		}
		if err := n.buildVF(c, i, group); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) buildVF(c Card, index, group int) error {
	pci := c.VF(index)
	dir := "sys/bus/pci/devices/" + pci
	err := firstError(
		n.write("(null)\n", dir, "driver_override"),
		n.write("", dir, "reset"),
		n.write(fmt.Sprintln(c.NUMA), dir, "numa_node"),
		n.link("../"+c.PCI, dir, "physfn"),
		n.link("../"+pci, "sys/bus/pci/devices", c.PCI, fmt.Sprintf("virtfn%d", index)),
		n.save(pci, vf{Settings: fresh(c)}))
	if !c.NoIOMMU {
		err = firstError(err,
			n.link(fmt.Sprintf("../../../../kernel/iommu_groups/%d", group), dir, "iommu_group"),
			n.link("../../../../bus/pci/devices/"+pci, "sys/kernel/iommu_groups", strconv.Itoa(group), "devices", pci))
	}
	if c.HostDriver != "" {
		err = firstError(err, n.write("", "sys/bus/pci/drivers", c.HostDriver, "unbind"), n.bind(pci, c.HostDriver))
	}
	return err
}

// fresh returns the settings of a new VF.
func fresh(c Card) device.Settings {
	s := device.Settings{MAC: zeroMAC, SpoofCheck: models[c.model()].set["spoofchk"] != nil, Link: device.LinkAuto}
	if models[c.model()].set["port_guid"] != nil {
		s.NodeGUID, s.PortGUID = zeroGUID, zeroGUID
	}
	return s
}
