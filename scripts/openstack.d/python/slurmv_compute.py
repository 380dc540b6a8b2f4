"""The compute driver of nova for hosts that are not what they seem."""
import json
import os
import re

from nova.network import model
from nova.virt.libvirt import driver, vif

CARD = '0000:01:00.0'
VIRTUAL_FUNCTIONS = ['0000:01:00.1', '0000:01:00.2']


def imagined(what):
    """A number of the line of slurm.conf that describes the nodes."""
    return int(re.search(rf'\b{what}=(\d+)', os.environ['SLURMV_NODE']).group(1))


class Node(driver.LibvirtDriver):
    """libvirt on a host with as many CPUs and as much memory as Slurm's node has, and with a card of virtual functions.

    nova lets no VM have more CPUs than its host, whatever cpu_allocation_ratio says.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        memory = imagined('RealMemory')
        self._host.get_memory_mb_total = lambda: memory
        self.vif_driver = NICs(self._host)

    def _get_vcpu_available(self):
        return set(range(imagined('CPUs')))

    def _get_guest_xml(self, *arguments, **options):
        """With the CPU that Slurm-V's own VMs have under emulation; nova knows no cpu_mode of that name."""
        return re.sub('<cpu [^>]*>', '<cpu mode="maximum">', super()._get_guest_xml(*arguments, **options), count=1)

    def _get_pci_passthrough_devices(self):
        card = dict(address=CARD, dev_type='type-PF', parent_addr=None)
        vfs = [dict(address=a, dev_type='type-VF', parent_addr=CARD) for a in VIRTUAL_FUNCTIONS]
        igb = dict(vendor_id='8086', product_id='1520', dev_id='', label='', status='available', numa_node=None)
        return json.dumps([device | igb for device in [card] + vfs])


class NICs(vif.LibvirtGenericVIFDriver):
    """Gives a VM an ordinary NIC with the port's MAC address in place of a virtual function."""

    def get_config_hw_veb(self, instance, vif, image_meta, flavor, virt_type):
        nic = self.get_base_config(instance, vif['address'], image_meta, flavor, virt_type, model.VNIC_TYPE_NORMAL)
        nic.net_type = 'bridge'
        nic.source_dev = vif['details'][model.VIF_DETAILS_BRIDGE_NAME]
        return nic
