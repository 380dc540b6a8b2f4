package main

import (
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A hardwareRequest is struct ifreq with an address (netdevice(7)).
type hardwareRequest struct {
	name    [unix.IFNAMSIZ]byte
	family  uint16
	address [14]byte
	_       [8]byte
}

// setMAC needs no right but the descriptor.
func setMAC(tap int, mac net.HardwareAddr) error {
	request := hardwareRequest{family: unix.ARPHRD_ETHER}
	copy(request.address[:], mac)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(tap), unix.SIOCSIFHWADDR, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("set its address: %w", errno)
	}
	return nil
}
