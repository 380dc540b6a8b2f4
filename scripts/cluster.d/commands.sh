# shellcheck shell=bash
# The commands: up, run, status, cpu, node, down.

complete=$dir/run/complete # `up` came to its end

cluster_up() {
	local want="nodes 2" other
	while (($#)); do
		case $1 in
		--nodes)
			[[ ${2:-} =~ ^[1-9][0-9]?$ ]] || die "up --nodes ${2:-}: want a number from 1 to 99"
			want="nodes $2"
			shift
			;;
		--real-cpus) want="real-cpus 1" ;;
		*) die "up: unknown option $1; see: scripts/cluster help" ;;
		esac
		shift
	done
	other=$(up_elsewhere)
	[[ -z $other ]] || die "the cluster of $dir is up in another container of this machine: processes $other"
	up_directory
	if [[ -e $complete ]] && holder ctl >/dev/null; then
		up_again "$want"
	else
		up_first "$want"
	fi
	say "up: $(on ctl sinfo --noheader --format='%D nodes, %N, %T')"
}

# cluster_build: for a cluster on another machine that sees these files, see test/cgroup2.
cluster_build() {
	(($# == 0)) || die "build takes no arguments"
	holder ctl >/dev/null && die "the cluster is up: scripts/cluster up installs a newer build"
	up_directory
	mkdir -p "$dir"/{run,log,etc/slurm-v}
	install_build
}

# up_directory: the cluster's directory, locked. A directory with something else in it is not ours.
up_directory() {
	lock
	[[ -e $marker || -z $(ls -A "$dir") ]] ||
		die "$dir has files but is no directory of a cluster; choose another SLURMV_CLUSTER_DIR"
	touch "$marker"
	chmod 0755 "$dir"
	setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$dir" || {
		rm "$marker"
		rmdir --ignore-fail-on-non-empty "$dir"
		die "$dir cannot be reached by ordinary users; choose a SLURMV_CLUSTER_DIR whose parents have mode o+x"
	}
}

# up_first: a cluster from nothing. What takes time runs side by side: building, making the database,
# making the hosts.
up_first() {
	local host build tables
	clear_remains
	rm -rf "${dir:?}"/{run,log,state,spool,hosts}
	mkdir -p "$dir"/{run,log,home,state,spool,hosts,etc/munge}
	echo "$1" >"$profile"
	accounts_make
	config_write
	say "installing the build and starting the hosts"
	install_build 9>&- &
	build=$!
	# shellcheck disable=SC2064 # expanded now, since $build is local to this function
	trap "wait $build" EXIT # a failing `up` ends with all that it has started
	network_switch
	host_on ctl
	make_database 9>&- &
	tables=$!
	start_daemon ctl munged
	start_daemon ctl bindfs
	for host in $(nodes); do
		host_on "$host"
		start_daemon "$host" munged
		start_daemon "$host" bindfs
	done
	wait "$tables" || exit 1
	start_daemon ctl mariadbd
	start_daemon ctl slurmdbd
	wait "$build" || exit 1
	config_write # the plugin is there now
	start_daemon ctl slurmctld
	books_open
	for host in $(nodes); do
		start_daemon "$host" slurmd
	done
	wait_for 30 nodes_ready || failed "the start of the nodes" "$dir/log/slurmctld.log"
	touch "$complete"
	trap - EXIT
}

# up_again: brings a running cluster up to date, and starts what has died.
up_again() {
	local have before node
	have=$(<"$profile")
	[[ $have == "$1" ]] || die "the cluster is up with \"$have\", not \"$1\"; to change it: scripts/cluster down"
	before=$(slurmd_input)
	if build_is_new; then
		say "installing the newer build"
		install_build
	fi
	config_write
	if [[ $before != "$(slurmd_input)" ]]; then
		say "the plugin or slurm.conf has changed: restarting each slurmd"
		for node in $(nodes); do
			stop_daemon "$node" slurmd
		done
		# slurmctld has to start again if nodes have other CPUs than before.
		on ctl scontrol reconfigure || stop_daemon ctl slurmctld
	fi
	start_missing
	wait_for 30 nodes_ready || die "not all nodes take jobs; see: scripts/cluster status"
}

# slurmd_input: changes when slurmd must be restarted. A slurmd that loaded the plugin before it was
# replaced never calls the new one's epilog hook.
slurmd_input() {
	cksum "$plugin" "$dir"/etc/slurm/*.conf 2>/dev/null || true
}

# start_missing: hosts without power and daemons that are not alive.
start_missing() {
	local host name
	for host in ctl $(nodes); do
		holder "$host" >/dev/null || host_restart "$host"
	done
	while read -r host name; do
		daemon_pid "$host" "$name" >/dev/null || start_daemon "$host" "$name"
	done < <(daemons)
}

# host_restart HOST: after a power cut.
host_restart() {
	host_off "$1"
	host_on "$1"
}

# clear_remains: what a cluster of this directory has outside of it.
clear_remains() {
	local name
	kill_all "$ns-*" "$cgroup_name"
	for name in $(our_namespaces); do
		ip netns delete "$name"
	done
	cgroup_remove "$cgroup_name"
}

cluster_run() {
	local user=alice host=ctl more=()
	while (($#)); do
		case $1 in
		--user | --node | --env)
			(($# > 1)) || die "run: $1 needs a value"
			case $1 in
			--user) user=$2 ;;
			--node) host=$2 ;;
			--env)
				[[ $2 =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || die "run: --env $2: want NAME=VALUE"
				more+=("$2")
				;;
			esac
			shift
			;;
		--)
			shift
			break
			;;
		-*) die "run: unknown option $1; see: scripts/cluster help" ;;
		*) break ;;
		esac
		shift
	done
	(($#)) || die "run: no command; try: scripts/cluster run -- sinfo"
	holder ctl >/dev/null || die "there is no cluster; start it with: scripts/cluster up"
	login "$host" "$user" "${more[@]}" -- "$@"
}

# login HOST USER [NAME=VALUE...] -- COMMAND...: replaces this shell by a command as sshd would start
# it: in the user's home, with an environment of its own. UCX, below MPI, gives up a connection
# without a sign of life after half a minute; two cores that emulate a dozen vCPUs can take longer.
login() {
	local host=$1 user=$2 more=() name uid gid home shell path=$prefix/bin:/usr/local/bin:/usr/bin:/bin
	shift 2
	while IFS=: read -r name _ uid gid _ home shell; do
		[[ $name != "$user" ]] || break
	done <"$dir/etc/passwd"
	[[ -n $user && $name == "$user" ]] || die "run: no user $user in the cluster; there are: root ${users[*]%:*}"
	((uid)) || path=$prefix/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	while [[ $1 != -- ]]; do
		more+=("$1")
		shift
	done
	shift
	[[ -z ${TERM:-} ]] || more=("TERM=$TERM" "${more[@]}")
	[[ $host == ctl ]] || more=("SLURMD_NODENAME=$host" "SLURMV_STATE_DIR=$state/$host"
		"SLURMV_RUN_DIR=/run/slurmv/$host" "${more[@]}")
	umask 022
	enter "$host" setpriv --reuid "$uid" --regid "$gid" --init-groups \
		env -i --chdir="$home" HOME="$home" USER="$user" LOGNAME="$user" SHELL="$shell" PATH="$path" \
		LANG=C.UTF-8 SLURM_CONF="$slurm_conf" UCX_TCP_KEEPIDLE=inf "${more[@]}" "$@"
}

cluster_status() {
	(($# == 0)) || die "status takes no arguments"
	holder ctl >/dev/null || {
		say "there is no cluster in $dir; start it with: scripts/cluster up"
		exit 3
	}
	local host name pid well=true
	while read -r host name; do
		if pid=$(daemon_pid "$host" "$name"); then
			printf '%-4s %-10s %8s  %s\n' "$host" "$name" "$pid" "$(daemon_log "$host" "$name")"
		else
			printf '%-4s %-10s %8s  %s\n' "$host" "$name" dead "$(daemon_log "$host" "$name")"
			well=false
		fi
	done < <(daemons)
	on ctl sinfo --Node --long || well=false
	nodes_ready || well=false
	$well || {
		say "not well. A dead daemon: scripts/cluster up starts it again. A node that is drained or down: scontrol show node"
		exit 1
	}
}

cluster_cpu() {
	local group=$cgroup_name/${1-}
	(($# <= 1)) || die "usage: scripts/cluster cpu [HOST]"
	[[ -z ${1-} || -n $(holder "$1") ]] || die "there is no host $1"
	if unified; then
		awk '$1 == "usage_usec" { print $2 / 1e6 }' "/sys/fs/cgroup/$group/cpu.stat"
	else
		awk '{ print $1 / 1e9 }' "/sys/fs/cgroup/cpuacct/$group/cpuacct.usage"
	fi
}

cluster_node() {
	[[ $# == 2 ]] || die "usage: scripts/cluster node NODE off|on"
	holder ctl >/dev/null || die "there is no cluster; start it with: scripts/cluster up"
	nodes | grep -qx -e "$1" || die "there is no node $1; the nodes are: $(nodes | xargs)"
	lock
	case $2 in
	off) host_off "$1" ;;
	on)
		holder "$1" >/dev/null || host_restart "$1"
		start_missing
		;;
	*) die "node $1 $2: want off or on" ;;
	esac
}

cluster_down() {
	local keep=()
	case ${1:-} in
	'') ;;
	--keep-logs) keep=(! -name log ! -name "${marker##*/}") ;;
	*) die "down: unknown option $1; see: scripts/cluster help" ;;
	esac
	[[ -e $dir || -n $(our_namespaces) ]] || return 0
	lock
	if [[ ! -e $marker ]]; then
		[[ -z $(ls -A "$dir") ]] || die "$dir is no directory of a cluster; nothing was removed"
	fi
	if [[ -z $(up_elsewhere) ]]; then
		cancel_jobs
		clear_remains
	fi
	find "$dir" -mindepth 1 -maxdepth 1 "${keep[@]}" -exec rm -rf --one-file-system {} +
	if [[ ${#keep[@]} == 0 ]]; then
		rmdir "$dir"
	else
		say "the logs are in $dir/log; without --keep-logs they are removed too"
	fi
}

# cancel_jobs: lets the jobs end in the ordinary way first, since what they hold may lie outside of the
# cluster (devices of the machine).
cancel_jobs() {
	daemon_pid ctl slurmctld >/dev/null || return 0
	local jobs
	mapfile -t jobs < <(on ctl squeue --noheader --format=%A | sort -u)
	((${#jobs[@]})) || return 0
	say "cancelling the jobs: ${jobs[*]}"
	on ctl scancel "${jobs[@]}" || true
	wait_for 40 no_jobs || say "these jobs did not end in time: $(on ctl squeue --noheader --format='%A(%T)' | xargs)"
}

no_jobs() { [[ -z $(on ctl squeue --noheader) ]]; }
