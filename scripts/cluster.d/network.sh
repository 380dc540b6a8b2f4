# shellcheck shell=bash
# The networks: a switch `sw` in a namespace of its own, and a cable from each host to it. Nothing leads out
# of these namespaces.

# network_switch: the switch of the cluster's network and that of the site's, with its DHCP server, and
# one for each card that the nodes have for VFs.
network_switch() {
	namespace_add sw
	in_network sw ip -batch - <<END
link add br-lan type bridge
link set br-lan up
link add br-site type bridge
link set br-site up
address add $site_lan.1/24 dev br-site
$(printf 'link add br-%s type bridge\nlink set br-%s up\n' vf0 vf0 vf1 vf1)
END
	in_network sw dnsmasq --conf-file=/dev/null --no-hosts --no-resolv --port=0 \
		--interface=br-site --bind-interfaces --dhcp-authoritative --user=root \
		--dhcp-range="$site_lan.100,$site_lan.250,255.255.255.0,1h" \
		--dhcp-leasefile="$dir/run/dnsmasq.leases" --pid-file="$dir/run/dnsmasq.pid" \
		--log-facility="$dir/log/dnsmasq.log" --log-dhcp 9>&- ||
		die "dnsmasq, the site's DHCP server, does not start; see $dir/log/dnsmasq.log"
}

# network_host HOST: its namespace and its cable to the cluster's network. A host keeps its MAC address
# when its power was cut: with another one, hosts that still know the old one would not reach it for a minute.
network_host() {
	namespace_add "$1"
	in_network sw ip -batch - <<END
link add lan-$1 type veth peer name eth0 address $(mac "$1") netns $ns-$1
link set lan-$1 master br-lan up
END
	in_network "$1" ip -batch - <<END
address add $(address "$1")/24 dev eth0
link set eth0 up
END
	if [[ $1 != ctl ]]; then
		network_bridge "$1" site
		network_bridge "$1" vf0
		network_bridge "$1" vf1
	fi
}

# network_bridge NODE NAME: a bridge br-NAME, as sites have them for VMs or declare to be a card with
# VFs, with a cable to the switch of that name.
network_bridge() {
	in_network sw ip -batch - <<END
link add $2-$1 type veth peer name ${2}p netns $ns-$1
link set $2-$1 master br-$2 up
END
	in_network "$1" ip -batch - <<END
link add br-$2 type bridge
link set br-$2 up
link set ${2}p master br-$2 up
END
}

# namespace_add HOST: an empty network namespace. A new namespace takes over the
# machine's ip_forward, which would let packets pass from one network of a node to another.
namespace_add() {
	ip netns add "$ns-$1"
	in_network "$1" ip link set lo up
	in_network "$1" sysctl -q net.ipv4.ip_forward=0
}

# network_unplug HOST: removes a host's namespace; its cables go with it.
network_unplug() {
	[[ ! -e $(netns "$1") ]] || ip netns delete "$ns-$1"
}
