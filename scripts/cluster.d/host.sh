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
	for file in passwd group shadow hosts nsswitch.conf resolv.conf slurm sudoers.d; do
		[[ -e /etc/$file ]] || continue
		mount --bind "$dir/etc/$file" "/etc/$file"
	done
}

private_directories() {
	mount -t tmpfs -o mode=0755 run /run
	mkdir -m 1777 /run/lock
	mount -t tmpfs -o mode=1777 shm /dev/shm
	mount --bind "$dir/hosts/$host/tmp" /tmp
	if [[ ! /proc/self/fd/8 -ef $dir ]]; then
		mkdir -p "$dir"
		mount --no-canonicalize --bind /proc/self/fd/8 "$dir"
	fi
}

# A sysfs shows the network devices of the namespace that mounts it, a cgroup file system the cgroups
# below the namespace's root.
private_sys() {
	local line top type options controllers name
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

private_files
private_directories
private_sys
exec 8<&-
echo $$ >"$dir/run/$host.pid"
exec sleep infinity
