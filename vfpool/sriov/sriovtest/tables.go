package sriovtest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// usualPKeys are those of a port that is in a job's partition, 0x1004, and of both kinds in the
// default partition.
var usualPKeys = []uint16{0xffff, 0x7fff, 0x8042, 0x9004}

const (
	keysOfVF = 4 // how many P_Keys a VF can have on a port
	ports    = 2 // of the card; the second has no network interface
)

func (n *Node) iov(c Card, elements ...string) string {
	return n.path(append([]string{"sys/bus/pci/devices", c.PCI, "infiniband/mlx_0/iov"}, elements...)...)
}

// buildTables makes the directory iov of an mlx4 card, as far as it is not there.
func (n *Node) buildTables(c Card) (err error) {
	if c.model() != "mlx4_core infiniband" {
		return nil
	}
	keys := c.PKeys
	if keys == nil {
		keys = usualPKeys
	}
	for port := range ports {
		port := strconv.Itoa(port + 1)
		for i, key := range keys {
			err = cmp.Or(err, put(fmt.Sprintf("%#04x", key), n.iov(c, "ports", port, "pkeys", strconv.Itoa(i))))
		}
		for number := range 1 + c.VFs {
			err = cmp.Or(err, put(fmt.Sprintf("%x", 0x0014050000000000+number), n.iov(c, "ports", port, "admin_guids", strconv.Itoa(number))))
		}
		for index := range c.VFs {
			err = cmp.Or(err, n.buildKeys(c, index, port))
		}
	}
	return err
}

// buildKeys gives a new VF the port's first P_Key, as the driver does.
func (n *Node) buildKeys(c Card, index int, port string) error {
	dir := n.iov(c, nameInTables(c, index), "ports", port)
	err := put(strconv.Itoa(index+1), filepath.Join(dir, "gid_idx/0"))
	for i := range keysOfVF {
		text := "none"
		if i == 0 {
			text = "0"
		}
		err = cmp.Or(err, put(text, filepath.Join(dir, "pkey_idx", strconv.Itoa(i))))
	}
	return err
}

// nameInTables is a VF's name there. From VF 79 on it is not the PCI address any more.
func nameInTables(c Card, index int) string {
	return fmt.Sprintf("%s%02d.%d", c.PCI[:8], (index+1)/8, (index+1)%8)
}

// put writes a file that is not there.
func put(text, path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return cmp.Or(os.MkdirAll(filepath.Dir(path), 0o755), replace(path, text+"\n"))
}

// writeTable is what the driver does when a file is written.
func (n kernel) writeTable(file, path, value string) error {
	if file == "admin_guids" {
		guid, err := strconv.ParseUint(value, 0, 64)
		if err != nil {
			return unix.EINVAL
		}
		return replace(path, fmt.Sprintf("%x\n", guid))
	}
	if index, err := strconv.Atoi(value); value != "none" && (err != nil || index < 0 || index > 126) {
		return unix.EINVAL
	}
	return replace(path, value+"\n")
}

// describeTables says what the tables have of a VF.
func (n *Node) describeTables(pci string) (text string) {
	c, index, ok := n.cardOf(pci)
	if !ok || c.model() != "mlx4_core infiniband" {
		return ""
	}
	for port := range ports {
		port := strconv.Itoa(port + 1)
		guid, _ := os.ReadFile(n.iov(c, "ports", port, "admin_guids", strconv.Itoa(index+1)))
		text += fmt.Sprintf(" port %s: guid=%s", port, strings.TrimSpace(string(guid)))
		for i := range keysOfVF {
			key, _ := os.ReadFile(n.iov(c, nameInTables(c, index), "ports", port, "pkey_idx", strconv.Itoa(i)))
			text += " " + strings.TrimSpace(string(key))
		}
	}
	return text
}
