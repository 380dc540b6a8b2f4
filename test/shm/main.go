// Command shm does to a shared-memory device of a VM what a test asks for.
//
//	shm fill DEVICE BYTE    fills it
//	shm add DEVICE N        adds 1 to its first eight bytes N times, each time in one locked instruction
//	shm sum DEVICE 0        prints these bytes as a number
//	shm count DEVICE BYTE   prints how much of it has that byte: "all", "none" or a number
//	shm beyond DEVICE       tries to reach more than there is, and prints how that ended
//
// DEVICE is a name below /dev/slurmv.
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/slurm-v/slurm-v/ivshmem/shm"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	m, err := shm.OpenDevice(args[1])
	if err != nil {
		return err
	}
	if args[0] == "beyond" {
		return beyond(args[1], len(m.Bytes()))
	}
	if args[0] == "add" || args[0] == "sum" {
		return add((*atomic.Uint64)(unsafe.Pointer(&m.Bytes()[0])), args[2])
	}
	b, err := strconv.ParseUint(args[2], 0, 8)
	if err != nil {
		return err
	}
	if args[0] == "fill" {
		copy(m.Bytes(), bytes.Repeat([]byte{byte(b)}, len(m.Bytes())))
		fmt.Println("filled", len(m.Bytes()))
		return nil
	}
	fmt.Println(amount(bytes.Count(m.Bytes(), []byte{byte(b)}), len(m.Bytes())))
	return nil
}

// add adds 1 so many times, and prints the sum.
func add(sum *atomic.Uint64, times string) error {
	n, err := strconv.Atoi(times)
	for range n {
		sum.Add(1)
	}
	fmt.Println(sum.Load())
	return err
}

func amount(n, all int) string {
	switch n {
	case 0:
		return "none"
	case all:
		return "all"
	}
	return strconv.Itoa(n)
}

// beyond tries what could reach memory behind the device's, if anything could.
func beyond(device string, size int) error {
	file, err := os.OpenFile("/dev/slurmv/"+device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	page := os.Getpagesize()
	for name, try := range map[string]struct {
		offset int64
		length int
	}{"one page more": {0, size + page}, "the page behind": {int64(size), page}, "half of it behind": {int64(size / 2), size}} {
		memory, err := syscall.Mmap(int(file.Fd()), try.offset, try.length, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err == nil {
			err = touch((*atomic.Uint64)(unsafe.Pointer(&memory[try.length-8])))
		}
		fmt.Printf("%s: %v\n", name, err)
	}
	err = file.Truncate(int64(2 * size))
	again, openErr := shm.OpenDevice(device)
	fmt.Printf("made larger: %v, %v bytes\n", err, openErr == nil && len(again.Bytes()) == size)
	return nil
}

// touch reads memory. The error says that there is none: an NVDIMM's driver lets programs map more than there is.
func touch(at *atomic.Uint64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = syscall.EFAULT
		}
	}()
	at.Load()
	return nil
}
