"""Compute drivers of nova for hosts that are not what they seem."""
import os
import re

from nova.pci import utils
from nova.virt import fake
from nova.virt.libvirt import driver


def imagined(what):
    """A number of the line of slurm.conf that describes the nodes."""
    return int(re.search(rf'\b{what}=(\d+)', os.environ['SLURMV_NODE']).group(1))


class Node(driver.LibvirtDriver):
    """libvirt on a host with as many CPUs and as much memory as Slurm's node has.

    nova lets no VM have more CPUs than its host, whatever cpu_allocation_ratio says.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        memory = imagined('RealMemory')
        self._host.get_memory_mb_total = lambda: memory

    def _get_vcpu_available(self):
        return set(range(imagined('CPUs')))

    def _get_guest_xml(self, *arguments, **options):
        """With the CPU that Slurm-V's own VMs have under emulation; nova knows no cpu_mode of that name."""
        return re.sub('<cpu [^>]*>', '<cpu mode="maximum">', super()._get_guest_xml(*arguments, **options), count=1)


class Pretender(fake.FakeDriverWithPciResources):
    """nova's fake hypervisor with a virtual function, 0000:01:00.1. Its numbers are too long for MariaDB's columns."""

    vcpus, memory_mb, local_gb = 64, 65536, 1000

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        # nova reads the rest about a virtual function from /sys, where this one is not.
        utils.get_mac_by_pci_address = lambda *of, **what: '52:54:00:1e:59:c6'
        utils.get_vf_num_by_pci_address = lambda address: 1

    def get_available_resource(self, nodename):
        resource = super().get_available_resource(nodename)
        devices = resource['pci_passthrough_devices']
        devices = devices.replace('fake-vendor_id', '8086').replace('fake-product_id', '1520')
        resource['pci_passthrough_devices'] = devices
        return resource
