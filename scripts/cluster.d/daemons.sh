# shellcheck shell=bash
# The daemons, and how to tell that each is up.

# daemons: which belong to the cluster, in the order of their start: "host name".
daemons() {
	local node
	printf 'ctl %s\n' munged bindfs mariadbd slurmdbd slurmctld
	for node in $(nodes); do
		printf '%s %s\n' "$node" munged "$node" bindfs "$node" slurmd
	done
}

# daemon_log HOST NAME: its log file.
daemon_log() {
	case $2 in
	munged | bindfs | slurmd) echo "$dir/log/$2-$1.log" ;;
	*) echo "$dir/log/$2.log" ;;
	esac
}

# daemon_pid_file NAME: in the host's own /run.
daemon_pid_file() {
	case $1 in
	munged) echo /run/munge/munged.pid ;;
	mariadbd) echo /run/mysqld/mysqld.pid ;;
	slurmd | bindfs) echo "/run/$1.pid" ;;
	*) echo "/run/slurm/$1.pid" ;;
	esac
}

# daemon_pid HOST NAME: prints the pid if that process is alive and lives on the host.
daemon_pid() {
	local pid=0 keeper
	keeper=$(holder "$1") || return 1
	read -r pid 2>/dev/null <"/proc/$keeper/root$(daemon_pid_file "$2")" || [[ $pid -gt 0 ]] || return 1
	[[ /proc/$pid/ns/mnt -ef /proc/$keeper/ns/mnt ]] && echo "$pid"
}

# failed WHAT LOG: shows the end of the log, says what to do, and ends.
failed() {
	say "the last lines of $2:"
	tail -n 20 "$2" 2>/dev/null | sed 's/^/    /' >&2
	die "$1 failed; all logs are in $dir/log. To begin again: scripts/cluster down && scripts/cluster up"
}

# start_daemon HOST NAME: starts it and waits until it serves.
start_daemon() {
	local log
	log=$(daemon_log "$1" "$2")
	"start_$2" "$1" </dev/null >>"$log" 2>&1 || failed "$2 on $1" "$log"
}

# stop_daemon HOST NAME: jobs outlive the restart of a slurmd.
stop_daemon() {
	local pid
	pid=$(daemon_pid "$1" "$2") || return 0
	kill -TERM "$pid"
	wait_for 20 not daemon_pid "$1" "$2" || die "$2 on $1, process $pid, does not end on SIGTERM"
}

not() { ! "$@"; }

# run_directory HOST NAME USER: a directory for its pid file and socket in the host's own /run.
run_directory() {
	install -d -m 0755 -o "$3" -g "$3" "/proc/$(holder "$1")/root/run/$2"
}

# start_munged HOST: each host has its own, all have one key.
start_munged() {
	run_directory "$1" munge munge
	install -d -m 0700 -o munge -g munge "$dir/spool/munge-$1"
	on "$1" setpriv --reuid munge --regid munge --init-groups munged --force --key-file="$dir/etc/munge/munge.key" \
		--pid-file=/run/munge/munged.pid --socket=/run/munge/munge.socket.2 \
		--log-file="$dir/spool/munge-$1/log" --seed-file="$dir/spool/munge-$1/seed"
}

# start_bindfs HOST: mounts what stands for a file server: a file system of its own to every host, which
# asks another process for each byte, at the rate of the host's link to it. One that died leaves its mount.
start_bindfs() {
	local rate=()
	[[ -z ${SLURMV_SHARED_RATE:-} ]] || rate=("--read-rate=$SLURMV_SHARED_RATE")
	mkdir -p "$server" "$shared"
	chmod 1777 "$server"
	on "$1" umount --quiet --lazy "$shared" || true
	# shellcheck disable=SC2016 # for the shell on the host
	serve "$1" setsid sh -c 'echo $$ >/run/bindfs.pid && exec bindfs -f --multithreaded "$@"' sh \
		"${rate[@]}" "$server" "$shared" 9>&- &
	wait_for 20 on "$1" mountpoint -q "$shared"
}

# The database of this cluster lives as long as its host: it is in memory and is never flushed.
database=(--no-defaults --user=mysql --datadir=/run/mysqld/data --innodb-log-file-size=8M
	--innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0
	--loose-innodb-snapshot-isolation=OFF) # MariaDB 11's default makes transactions of slurmdbd fail

# make_database: an empty data directory of MariaDB.
make_database() {
	local log=$dir/log/mariadb-install-db.log
	run_directory ctl mysqld mysql
	on ctl mariadb-install-db "${database[@]}" --skip-test-db --skip-name-resolve \
		--auth-root-authentication-method=socket </dev/null >"$log" 2>&1 ||
		failed mariadb-install-db "$log"
}

start_mariadbd() {
	serve ctl setsid mariadbd "${database[@]}" --skip-networking --skip-log-bin \
		--socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid \
		--init-file="$dir/etc/database.sql" --innodb-lock-wait-timeout=900 9>&- &
	wait_for 30 on ctl mariadb --no-defaults --batch --execute='USE slurm_acct_db'
}

# start_slurmdbd: it makes its tables at the first start.
start_slurmdbd() {
	run_directory ctl slurm slurm
	chown slurm:slurm "$dir/log/slurmdbd.log"
	on ctl slurmdbd
	wait_for 30 listening 6819
}

start_slurmctld() {
	chown slurm:slurm "$dir/log/slurmctld.log"
	on ctl slurmctld
	wait_for 20 listening 6817
}

# start_slurmd NODE: with the limits that Slurm's own unit gives it, as far as root may raise them here. With cgroup v2,
# slurmd of Slurm 24.11 moves all processes of its group into one below that, so it has a group of its own.
start_slurmd() {
	local group
	mkdir -p "$dir/spool/$1"
	group=$(cgroup_of "$1" slurmd)
	! unified || { cgroup_remove "$cgroup_name/$group" && mkdir "/sys/fs/cgroup/$cgroup_name/$group"; }
	(
		for limit in "-n 131072" "-l unlimited" "-s unlimited"; do
			# shellcheck disable=SC2086 # an option and its value
			ulimit $limit 2>/dev/null || true
		done
		on "$1" slurmd -N "$1"
	) && wait_for 30 daemon_pid "$1" slurmd
}

# registered: whether slurmdbd knows this cluster.
registered() { on ctl sacctmgr --noheader --parsable2 list cluster format=cluster | grep -qx "$cluster_name"; }

# listening PORT: whether something on ctl accepts connections.
listening() {
	in_network ctl bash -c "exec 3<>/dev/tcp/$(address ctl)/$1" 2>/dev/null
}

# nodes_ready: every node takes jobs.
nodes_ready() {
	local states
	states=$(on ctl sinfo --noheader --Node --format=%T) || return 1
	[[ -n $states ]] && not grep -qvxE 'idle|mixed|allocated|completing' <<<"$states"
}

# books_open: the accounting knows the users. Slurm's own words for "already there" are no failure. An
# account belongs to the clusters that have registered before.
books_open() {
	local log=$dir/log/sacctmgr.log names
	wait_for 30 registered || failed "the cluster's registration with slurmdbd" "$dir/log/slurmdbd.log"
	names=$(printf '%s\n' "${users[@]%:*}" | paste -sd,)
	{
		on ctl sacctmgr --immediate add account demo && on ctl sacctmgr --immediate add user "$names" account=demo
	} </dev/null >"$log" 2>&1 || grep -q 'Nothing new added' "$log" || failed sacctmgr "$log"
}
