package cxi

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "libcxi.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Library is a loaded libcxi. Its methods may be called from several goroutines.
type Library struct {
	lib   *C.struct_cxi_library
	pause time.Duration // between two attempts to destroy a service
}

// Open loads libcxi: a file name such as "libcxi.so.1", which is looked for where the
// system has its libraries, or a path.
func Open(lib string) (*Library, error) {
	path := C.CString(lib)
	defer C.free(unsafe.Pointer(path))
	loaded := new(*C.struct_cxi_library)
	if text := C.slurmv_cxi_open(path, loaded); text != nil {
		defer C.free(unsafe.Pointer(text))
		return nil, fmt.Errorf("load %s, which makes services on Slingshot cards: %s; "+
			"install libcxi of the Slingshot Host Software on this node, or name its file as libcxi in [fabric.vni] of slurmv.toml", lib, C.GoString(text))
	}
	return &Library{lib: *loaded, pause: time.Second}, nil
}

// Close unloads the library. The Library cannot be used any more.
func (l *Library) Close() {
	C.slurmv_cxi_close(l.lib)
	l.lib = nil
}

// A Device is a Slingshot card of the node.
type Device struct {
	ID   uint32  `json:"id"`
	Name string  `json:"name"` // "cxi" and the ID
	Has  Amounts `json:"has"`  // all that there is on the card
}

// Devices returns the node's cards that libcxi can open. Virtual functions are left out:
// services belong to the card, and hold for its virtual functions.
func (l *Library) Devices() ([]Device, error) {
	read := new(*C.struct_cxi_devices)
	if err := errnoOf(C.slurmv_cxi_devices(l.lib, read)); err != nil {
		return nil, fmt.Errorf("list the Slingshot cards: %w", err)
	}
	list := *read
	defer C.slurmv_cxi_free_devices(l.lib, list)
	var cards []Device
	for i := range int(list.count) {
		d := deviceAt(list, i)
		card := toDevice(d)
		if want := fmt.Sprintf("cxi%d", card.ID); card.Name != want {
			return nil, fmt.Errorf("list the Slingshot cards: libcxi calls card %d %q, not %q: "+
				"this libcxi has layouts that this release of Slurm-V does not know", card.ID, card.Name, want)
		}
		if !d.vf {
			cards = append(cards, card)
		}
	}
	return cards, nil
}

// Services returns the services on a card.
func (l *Library) Services(card Device) ([]Service, error) {
	read := new(*C.struct_cxi_services)
	if err := errnoOf(C.slurmv_cxi_services(l.lib, C.uint32_t(card.ID), read)); err != nil {
		return nil, fmt.Errorf("list the CXI services of %s: %w", card.Name, err)
	}
	list := *read
	defer C.slurmv_cxi_free_services(l.lib, list)
	var services []Service
	for i := range int(list.count) {
		services = append(services, toService(serviceAt(list, i)))
	}
	return services, nil
}

// Use returns how many of each resource the members of a service use.
func (l *Library) Use(card Device, id uint32) (Amounts, error) {
	var use C.struct_cxi_use
	if err := errnoOf(C.slurmv_cxi_use(l.lib, C.uint32_t(card.ID), C.uint32_t(id), &use)); err != nil {
		return Amounts{}, fmt.Errorf("read the use of CXI service %d of %s: %w", id, card.Name, err)
	}
	return amounts(use.in_use), nil
}

// alloc makes a service as it is, and returns its ID. The driver's report has a meaning if the
// error is ENOSPC.
func (l *Library) alloc(card Device, s Service) (uint32, report, error) {
	desc := fromService(s)
	var why C.struct_cxi_report
	rc := C.slurmv_cxi_alloc(l.lib, C.uint32_t(card.ID), &desc, &why)
	if rc > 0 {
		return uint32(rc), report{}, nil
	}
	err := errnoOf(rc)
	if err == nil {
		err = errors.New("libcxi returned the ID 0")
	}
	return 0, toReport(why), err
}

// destroy destroys a service. The error is a unix.Errno.
func (l *Library) destroy(card Device, id uint32) error {
	return errnoOf(C.slurmv_cxi_destroy(l.lib, C.uint32_t(card.ID), C.uint32_t(id)))
}

// errnoOf returns the error of a function of libcxi, which is nil or a unix.Errno.
func errnoOf(rc C.int) error {
	if rc >= 0 {
		return nil
	}
	return unix.Errno(-rc)
}
