# shellcheck shell=bash
# The hosts: namespaces that a process which does nothing, the holder, keeps alive.

group='' # the cgroup to enter, if it is not the host's own

# hierarchies: where the machine's cgroup hierarchies are mounted (one with cgroup v2).
hierarchies() {
	local top type seen=' '
	while read -r _ top type _; do
		[[ $type =~ ^cgroup2?$ && $top == /sys/fs/cgroup* && $seen != *" $top "* ]] || continue
		seen+="$top "
		echo "$top"
	done </proc/mounts
}

# unified: whether the machine has only cgroup v2.
unified() { [[ -e /sys/fs/cgroup/cgroup.controllers ]]; }

# holder HOST: prints the process that keeps the host's namespaces. A recorded pid counts only if that
# process is in the host's network namespace: pids come round again.
holder() {
	local pid=
	read -r pid 2>/dev/null <"$dir/run/$1.pid" || return 1
	[[ $pid -gt 0 && /proc/$pid/ns/net -ef $(netns "$1") ]] || return 1
	echo "$pid"
}

# host_on HOST: makes the host's namespaces; host.sh does the rest from inside.
host_on() {
	rm -f "$dir/run/$1.pid"
	network_host "$1"
	cgroup_make "$1"
	mkdir -p "$dir/hosts/$1/tmp"
	chmod 1777 "$dir/hosts/$1/tmp"
	(
		cgroup_join "$1"
		exec setsid nsenter --net="$(netns "$1")" \
			unshare --mount --uts --ipc --cgroup bash "$parts/host.sh" "$dir" "$1"
	) >"$dir/log/host-$1.log" 2>&1 </dev/null 9>&- &
	wait_for 30 holder "$1" || failed "the host $1" "$dir/log/host-$1.log"
}

# host_off HOST: what a power cut does.
host_off() {
	kill_all "$ns-$1" "$cgroup_name/$1"
	network_unplug "$1"
	cgroup_remove "$cgroup_name/$1"
	rm -f "$dir/run/$1.pid"
}

# enter HOST COMMAND...: replaces this (sub)shell by a command on the host, in $group or among the host's own processes.
enter() {
	local host=$1 pid
	shift
	pid=$(holder "$host") || die "the host $host is not up; see: scripts/cluster status"
	cgroup_join "${group:-$(cgroup_of "$host")}"
	exec nsenter --target "$pid" --mount --uts --ipc --net --cgroup -- "$@"
}

# serve HOST COMMAND...: replaces this (sub)shell by a command of root on the host, as a service would
# run it: with an environment of its own.
serve() {
	local host=$1
	shift
	enter "$host" env -i --chdir=/ SLURM_CONF="$slurm_conf" LANG=C.UTF-8 HOME=/root \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# on HOST COMMAND...: the same in a subshell.
on() { (serve "$@") 9>&-; }

# cgroup_make HOST: a directory of its own in every hierarchy; it is the root that the host sees.
cgroup_make() {
	local top part
	while read -r top; do
		for part in "$cgroup_name" "$cgroup_name/$1"; do
			mkdir -p "$top/$part"
			cgroup_inherit "$top/$part"
		done
	done < <(hierarchies)
}

# cgroup_inherit DIRECTORY: gives it what its parent may use: a new cpuset of cgroup v1 is empty and
# takes no process; with v2 the parent must pass its controllers on.
cgroup_inherit() {
	local file controller
	for file in cpuset.cpus cpuset.mems; do
		[[ ! -e $1/$file || -e $1/cgroup.controllers || -s $1/$file && -n $(<"$1/$file") ]] ||
			cat "${1%/*}/$file" >"$1/$file"
	done
	unified || return 0
	for controller in cpuset cpu memory pids; do
		echo "+$controller" >"${1%/*}/cgroup.subtree_control" ||
			die "cannot have the cgroup controller $controller in $1; Slurm needs it"
	done
}

# cgroup_join GROUP: moves this (sub)shell into a cgroup of the cluster.
cgroup_join() {
	local top
	while read -r top; do
		echo "$BASHPID" >"$top/$cgroup_name/$1/cgroup.procs"
	done < <(hierarchies)
}

# cgroup_of HOST [NAME]: where its own processes are, or those of a service. With cgroup v2 a cgroup has processes or
# passes controllers on to others, not both, and the host's root does the latter for Slurm.
cgroup_of() {
	if unified; then
		echo "$1/${2:-host}"
	else
		echo "$1"
	fi
}

# cgroup_remove NAME: removes a directory and all below it from every hierarchy.
cgroup_remove() {
	local top
	while read -r top; do
		[[ ! -d $top/$1 ]] || find "$top/$1" -depth -type d -exec rmdir {} +
	done < <(hierarchies)
}

# members NAMESPACE-PATTERN CGROUP: the processes in network namespaces of ours and in a cgroup.
# Neither alone has all: a job may change its network namespace, root on a node its cgroup.
members() {
	local name top
	for name in $(our_namespaces); do
		# shellcheck disable=SC2053 # a pattern
		[[ $name != $1 ]] || ip netns pids "$name"
	done
	while read -r top; do
		[[ ! -d $top/$2 ]] || find "$top/$2" -name cgroup.procs -exec cat {} +
	done < <(hierarchies)
}

# kill_all NAMESPACE-PATTERN CGROUP: ends their processes and waits until they are gone.
kill_all() {
	wait_for 20 killed "$@" || die "these processes do not end: $(members "$@" | sort -nu | xargs); see /proc/PID/stack"
}

# killed NAMESPACE-PATTERN CGROUP: whether they are gone; kills them once more.
killed() {
	local pids
	pids=$(members "$@" | sort -nu)
	[[ -n $pids ]] || return 0
	echo "$pids" | xargs kill -KILL || true
	return 1
}
