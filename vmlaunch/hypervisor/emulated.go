package hypervisor

import "libvirt.org/go/libvirtxml"

// translatedCode bounds what TCG keeps of the code it has translated, in MiB. Its
// own bound, 1 GiB, is more than the memory that most jobs have asked for.
const translatedCode = 64

// slow are features that a kernel uses because they are fast in a real processor. Emulated,
// they are slow: memory is copied and cleared byte by byte (erms, fsrm), addresses are
// looked up in five levels instead of four (la57).
var slow = []string{"erms", "fsrm", "la57"}

// inlineQueues lets the vCPU's thread serve a virtio queue itself when the guest notifies it.
// By default the thread wakes QEMU's main thread, which then waits for the lock that the vCPU's
// thread holds. A third of the time in the firmware and boot loader goes away with that.
var inlineQueues = []string{"-global", "virtio-pci.ioeventfd=off"}

// oneArena has QEMU's threads share what they allocate from. Those of their own, the C
// library makes larger and smaller by a page at a time.
var oneArena = []libvirtxml.DomainQEMUCommandlineEnv{{Name: "MALLOC_ARENA_MAX", Value: "1"}}
