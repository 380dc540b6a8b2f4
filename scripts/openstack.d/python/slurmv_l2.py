"""Mechanism drivers of neutron's ML2 for hosts without an agent: a port is plugged in as soon as it has a host, if its
network is one of which the hosts have a cable."""
from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.db import constants as db
from neutron_lib.plugins.ml2 import api
from neutron_lib.services.qos import base as qos
from neutron_lib.services.qos import constants as rules

BRIDGE = 'br-cloud'


class Rates(qos.DriverBase):
    """Allows rates of ports of the kind `direct`, those of which sriovnicswitch would tell a virtual function."""

    def __init__(self):
        number = {'type:range': [0, db.DB_INTEGER_MAX_VALUE]}
        sent = {'type:values': [constants.EGRESS_DIRECTION]}
        super().__init__(
            'slurmv', [portbindings.VIF_TYPE_HW_VEB], [portbindings.VNIC_DIRECT], {
                rules.RULE_TYPE_BANDWIDTH_LIMIT: {rules.MAX_KBPS: number, rules.MAX_BURST: number, rules.DIRECTION: sent},
                rules.RULE_TYPE_MINIMUM_BANDWIDTH: {rules.MIN_KBPS: number, rules.DIRECTION: sent},
            }, requires_rpc_notifications=False)


class Direct(api.MechanismDriver):
    """Binds ports of the kind `direct` as sriovnicswitch would bind them to a virtual function."""

    def initialize(self):
        Rates()

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context):
        kind = context.current.get(portbindings.VNIC_TYPE, portbindings.VNIC_NORMAL)
        binding = self.binding(kind, self.bridge(context))
        for segment in context.segments_to_bind:
            if binding and segment[api.NETWORK_TYPE] == constants.TYPE_FLAT:
                how, details = binding
                details = dict(details, **{portbindings.CAP_PORT_FILTER: False})
                context.set_binding(segment[api.ID], how, details, status=constants.PORT_STATUS_ACTIVE)
            return

    def binding(self, kind, bridge):
        if kind == portbindings.VNIC_DIRECT:  # slurmv_compute.py needs the bridge
            return portbindings.VIF_TYPE_HW_VEB, {portbindings.VIF_DETAILS_VLAN: '0', portbindings.VIF_DETAILS_BRIDGE_NAME: bridge}
        return None

    def bridge(self, context):
        """That of the Linux bridge agent."""
        return 'brq' + context.current['network_id'][:11]


class Static(Direct):
    """Binds ordinary ports, too: to the bridge that every host has."""

    def binding(self, kind, bridge):
        if kind == portbindings.VNIC_NORMAL:
            return portbindings.VIF_TYPE_BRIDGE, {portbindings.VIF_DETAILS_BRIDGE_NAME: bridge}
        return super().binding(kind, bridge)

    def bridge(self, context):
        return BRIDGE
