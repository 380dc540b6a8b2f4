package netlab

import (
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Nobody is the uid of an ordinary user.
const Nobody = 65534

// AsNobody runs f on the node with an ordinary user's rights.
func (n *Node) AsNobody(f func() error) error {
	return n.Do(func() error {
		// The system calls change only this thread, which ends with f; unix.Setresuid
		// changes all.
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, err := unix.RawSyscall(call, Nobody, Nobody, Nobody); err != 0 {
				return err
			}
		}
		return f()
	})
}

// OpenTapAsNobody is OpenTap for an ordinary user. It opens /dev/net/tun before giving up
// its rights, because not all machines let users open that.
func (n *Node) OpenTapAsNobody(name string) (tap *os.File, err error) {
	var fd int
	err = n.Do(func() (err error) {
		fd, err = openTun()
		return err
	})
	if err != nil {
		return nil, err
	}
	return tap, n.AsNobody(func() (err error) {
		tap, err = attach(fd, name)
		return err
	})
}

// SetMAC sets a tap's hardware address, as any program that has the tap open may.
func SetMAC(tap *os.File, mac net.HardwareAddr) error {
	request := struct {
		name   [unix.IFNAMSIZ]byte
		family uint16
		mac    [14]byte
		_      [8]byte
	}{family: unix.ARPHRD_ETHER}
	copy(request.mac[:], mac)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, tap.Fd(), unix.SIOCSIFHWADDR, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return fmt.Errorf("set the MAC address of a tap: %w", errno)
	}
	return nil
}
