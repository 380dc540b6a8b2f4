package hypervisor

import "libvirt.org/go/libvirtxml"

// translatedCode bounds TCG's cache of translated code, in MiB. TCG's default, 1 GiB, is
// more memory than most jobs have.
const translatedCode = 64

// slow are CPU features that kernels use because real processors run them fast. Emulated,
// they are slow: memory is copied and cleared byte by byte (erms, fsrm), and addresses are
// looked up in five levels instead of four (la57).
var slow = []string{"erms", "fsrm", "la57"}

// inlineQueues lets the vCPU's thread serve a virtio queue itself when the guest notifies it.
// By default the thread wakes QEMU's main thread, which then waits for the lock that the vCPU's
// thread holds. A third of the time in the firmware and boot loader goes away with that.
var inlineQueues = []string{"-global", "virtio-pci.ioeventfd=off"}

// oneArena makes QEMU's threads share one malloc arena. The C library grows and shrinks the
// arenas of single threads page by page, which is slow.
var oneArena = []libvirtxml.DomainQEMUCommandlineEnv{{Name: "MALLOC_ARENA_MAX", Value: "1"}}
