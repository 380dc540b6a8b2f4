# shellcheck shell=bash
# What the hosts of the cluster get for the cloud: a cgroup, a cable to the guests' network, libvirt's directories.

# cloud_hosts: those where the cloud has something.
cloud_hosts() {
	echo ctl
	nodes
}

# cgroup_below HOST: the cgroup of the cloud's processes, libvirtd's VMs among them.
cgroup_below() { echo "$1/openstack"; }

# on_cloud HOST COMMAND...: replaces this (sub)shell by a command of root in that cgroup. stevedore, which finds the
# services' plugins, keeps a list of them in HOME.
on_cloud() {
	local host=$1 pid
	shift
	pid=$(holder "$host") || die "the host $host is not up; see: scripts/cluster status"
	cgroup_join "$(cgroup_below "$host")"
	exec nsenter --target "$pid" --mount --uts --ipc --net --cgroup -- env -i --chdir=/ HOME="$cloud/home" LANG=C.UTF-8 \
		PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH="$cloud/python" "$@"
}

# host_join HOST: what is there already stays, so that `up` can run again.
host_join() {
	cgroup_make "$(cgroup_below "$1")"
	install -d -m 0755 "/proc/$(holder "$1")/root/run/openstack"
	guest_cable "$1"
	[[ $1 == ctl ]] || libvirt_directories "$1"
}

# host_first HOST: its processes come before those of the other hosts. The services' answers have deadlines, and a machine
# of their own in a site's cloud; here they share the CPUs with the VMs of all hosts.
host_first() {
	local top weight
	while read -r top; do
		for weight in cpu.shares=8192 cpu.weight=800; do
			[[ ! -e $top/$cgroup_name/$1/${weight%=*} ]] || echo "${weight#*=}" >"$top/$cgroup_name/$1/${weight%=*}"
		done
	done < <(hierarchies)
}

# guest_switch: the switch of the guests' network, in the namespace of the cluster's other switches.
guest_switch() {
	in_network sw ip link show br-cloud >/dev/null 2>&1 || in_network sw ip link add br-cloud type bridge
	in_network sw ip link set br-cloud up
}

# guest_cable HOST: `cloudp`, its end of the cable to that switch. On nodes it is in a bridge br-cloud where nova
# puts the guests, unless neutron's agent makes a bridge. The host's address is on what the guests reach first.
guest_cable() {
	in_network "$1" ip link show cloudp >/dev/null 2>&1 || in_network sw ip -batch - <<END
link add cloud-$1 type veth peer name cloudp netns $ns-$1
link set cloud-$1 master br-cloud up
END
	in_network "$1" ip link set cloudp up
	if [[ $1 == ctl || $(plugging) == agents ]]; then
		guest_address_on "$1" cloudp
		return
	fi
	in_network "$1" ip link show br-cloud >/dev/null 2>&1 || in_network "$1" ip link add br-cloud type bridge
	in_network "$1" ip link set br-cloud up
	in_network "$1" ip link set cloudp master br-cloud
	guest_address_on "$1" br-cloud
}

# guest_address_on HOST DEVICE: neutron's agent moves the address to its bridge.
guest_address_on() {
	[[ -z $(in_network "$1" ip -o address show to "$(guest_address "$1")") ]] || return 0
	in_network "$1" ip address add "$(guest_address "$1")/16" dev "$2"
}

libvirt_parts=(etc/libvirt var/lib/libvirt var/log/libvirt var/cache/libvirt)

# libvirt_directories NODE: the node's own, in place of the machine's.
libvirt_directories() {
	local part own
	for part in "${libvirt_parts[@]}"; do
		own=$cloud/$1/${part//\//-}
		mkdir -p "$own" "/$part"
		on "$1" mountpoint -q "/$part" || on "$1" mount --bind "$own" "/$part"
	done
	mkdir -p "$cloud/$1"/{instances,state}
	cp -n "$kept"/libvirt/* "$cloud/$1/var-cache-libvirt/" 2>/dev/null || true
	chmod 0711 "$cloud/$1"
}

# host_leave HOST: ends the cloud's processes there and takes away what host_join gave.
host_leave() {
	local part link
	kill_all none "$cgroup_name/$(cgroup_below "$1")"
	cgroup_remove "$cgroup_name/$(cgroup_below "$1")"
	holder "$1" >/dev/null || return 0
	for part in "${libvirt_parts[@]}"; do
		while on "$1" mountpoint -q "/$part"; do
			on "$1" umount "/$part"
		done
	done
	on "$1" rm -rf /run/openstack /run/libvirt
	guest_links "$1" | while read -r link; do
		in_network "$1" ip link delete "$link"
	done
}

# guest_links HOST: the devices of the cloud: our cable and bridge, neutron's bridges, nova's taps.
guest_links() {
	in_network "$1" ip -o link show | sed -nE 's/^[0-9]+: (cloudp|br-cloud|brq[0-9a-f-]+|tap[0-9a-f]{8}-[0-9a-f]{2})[@:].*/\1/p'
}
