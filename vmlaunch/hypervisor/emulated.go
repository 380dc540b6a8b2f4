package hypervisor

import "libvirt.org/go/libvirtxml"

// translatedCode bounds TCG's cache of translated code, in MiB. TCG's default, 1 GiB, is
// more memory than most jobs have.
const translatedCode = 64

// slow are CPU features that kernels use because real processors run them fast. Emulated,
// they are slow: memory is copied and cleared byte by byte (erms, fsrm), and addresses are
// looked up in five levels instead of four (la57).
var slow = []string{"erms", "fsrm", "la57"}

// inlineQueues makes the thread that emulates a processor serve a queue itself when the
// guest notifies it. By default it wakes another thread, which then waits for the lock that
// the first thread holds.
var inlineQueues = []string{"-global", "virtio-pci.ioeventfd=off"}

// oneArena makes QEMU's threads share one malloc arena. The C library grows and shrinks the
// arenas of single threads page by page, which is slow.
var oneArena = []libvirtxml.DomainQEMUCommandlineEnv{{Name: "MALLOC_ARENA_MAX", Value: "1"}}
