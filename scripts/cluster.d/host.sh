#!/bin/bash
# Runs in the new namespaces of a host of the cluster: gives it the files and file systems a host
# calls its own, and then holds the namespaces until it is killed.
#
# usage: host.sh CLUSTER-DIRECTORY HOST
set -euo pipefail

dir=$1
host=$2

hostname "$host"
exec 8<"$dir" # /tmp, which may hold the cluster's directory, is covered below

# What the machine mounts under /sys/fs/cgroup, as "directory type options".
mapfile -t cgroups < <(awk '($3 == "cgroup" || $3 == "cgroup2") && $2 ~ "^/sys/fs/cgroup" { print $2, $3, $4 }' /proc/mounts)

private_files() {
	local file
	for file in passwd group shadow hosts nsswitch.conf resolv.conf slurm slurm-v sudoers.d; do
		[[ -e /etc/$file ]] || continue
		mount --bind "$dir/etc/$file" "/etc/$file"
	done
}

private_directories() {
	mount -t tmpfs -o mode=0755 run /run
	mkdir -m 1777 /run/lock
	mount -t tmpfs -o mode=1777 shm /dev/shm
	mkdir /run/hugepages
	mount -t hugetlbfs -o pagesize=2M,mode=0755 hugepages /run/hugepages || rmdir /run/hugepages # not every kernel has them
	mount --bind "$dir/hosts/$host/tmp" /tmp
	if [[ ! /proc/self/fd/8 -ef $dir ]]; then
		mkdir -p "$dir"
		mount --no-canonicalize --bind /proc/self/fd/8 "$dir"
	fi
}

# As udev makes it at sites: anybody may open it. The machine's own stays as it is.
private_tun() {
	mknod -m 0666 /run/tun c 10 200
	mount --bind /run/tun /dev/net/tun
}

# A sysfs shows the network devices of the namespace that mounts it, a cgroup file system the cgroups
# below the namespace's root.
private_sys() {
	local line top type options controllers name
	umount --recursive --lazy /sys # a slurmd takes covered cgroup file systems for its own
	mount -t sysfs sysfs /sys
	[[ ${cgroups[0]} == "/sys/fs/cgroup "* ]] || mount -t tmpfs -o mode=0755 cgroup /sys/fs/cgroup
	for line in "${cgroups[@]}"; do
		read -r top type options <<<"$line"
		mkdir -p "$top"
		controllers=$(tr , '\n' <<<"$options" | grep -vxE 'r[ow]|nosuid|nodev|noexec|relatime|noatime|nsdelegate|memory_recursiveprot|xattr|clone_children|release_agent=.*' | paste -sd, || true)
		mount -t "$type" ${controllers:+-o "$controllers"} cgroup "$top"
		for name in ${controllers//,/ }; do # cpu and cpuacct, where they are mounted together
			[[ $name == name=* || -e /sys/fs/cgroup/$name ]] || ln -s "${top##*/}" "/sys/fs/cgroup/$name"
		done
	done
}

# cgroup v2: makes the root of the host's cgroups pass controllers on, which it can when we have left it.
# Slurm's own are in a scope of systemd, which it finds by asking process 1 where the root is. That scope
# passes pids on, too, which nobody needs: Slurm 22.05 overlooks the last controller of a list.
share_controllers() {
	local part controller
	[[ -e /sys/fs/cgroup/cgroup.controllers ]] || return 0
	mkdir -p /sys/fs/cgroup/host "/sys/fs/cgroup/system.slice/${host}_slurmstepd.scope"
	echo $$ >/sys/fs/cgroup/host/cgroup.procs
	for part in . system.slice "system.slice/${host}_slurmstepd.scope"; do
		for controller in cpuset cpu memory pids; do
			echo "+$controller" >"/sys/fs/cgroup/$part/cgroup.subtree_control"
		done
	done
	echo 0::/ >/run/root-cgroup
	mount --bind /run/root-cgroup /proc/1/cgroup
	# A slurmstepd moves itself to the root before it removes its step's cgroups.
	mount --bind /sys/fs/cgroup/{host/,}cgroup.procs
	# libvirt takes the mount of a cgroup file system that came last, which must not be the one of a file.
	mkdir /run/cgroup
	mount -t cgroup2 cgroup /run/cgroup
}

private_files
private_directories
private_tun
private_sys
share_controllers
exec 8<&-
echo $$ >"$dir/run/$host.pid"
exec sleep infinity
