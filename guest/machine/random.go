package machine

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// minSeed is the size of the key of the kernel's random generator, in bytes.
const minSeed = 32

// From linux/random.h; package unix does not have these.
const (
	rndAddEntropy = 0x40085203
	rndReseedCRNG = 0x5207
)

// reseed mixes seed into the kernel's random numbers, credits it, and makes the generator
// start again from it. The generator's state was restored with the VM, so other VMs from
// the template have the same state.
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
