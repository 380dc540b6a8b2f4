package machine

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// minSeed is as much as the kernel's generator holds, in bytes.
const minSeed = 32

// From linux/random.h; package unix has neither.
const (
	rndAddEntropy = 0x40085203
	rndReseedCRNG = 0x5207
)

// reseed mixes seed into the kernel's random numbers, credits it, and has them begin anew
// with it: what was restored with the VM is the same in others.
func (m *Machine) reseed(seed []byte) error {
	if len(seed) < minSeed {
		return fmt.Errorf("a seed of %d bytes is too short", len(seed))
	}
	if m.reseedWith != nil {
		return m.reseedWith(seed)
	}
	device, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	// struct rand_pool_info: bits, bytes, and the bytes.
	pool := binary.NativeEndian.AppendUint32(nil, uint32(8*len(seed)))
	pool = binary.NativeEndian.AppendUint32(pool, uint32(len(seed)))
	pool = append(pool, seed...)
	for _, call := range []struct {
		request uintptr
		data    unsafe.Pointer
	}{{rndAddEntropy, unsafe.Pointer(unsafe.SliceData(pool))}, {rndReseedCRNG, nil}} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), call.request, uintptr(call.data)); errno != 0 {
			return fmt.Errorf("seed the kernel's random numbers: %w", errno)
		}
	}
	return nil
}
