# shellcheck shell=bash
# The daemons, and how to tell that each is up.

# cloud_daemons: in the order of their start: "host name".
cloud_daemons() {
	local host
	for host in $(nodes); do
		echo "$host libvirtd"
	done
	printf 'ctl %s\n' mariadbd epmd rabbitmq nova-conductor keystone placement neutron nova-scheduler nova-api glance
	for host in $(nodes); do
		[[ $(plugging) != agents ]] || echo "$host linuxbridge-agent"
		echo "$host nova-compute"
	done
}

cloud_log() { echo "$cloud/log/$2-$1.log"; }

# cloud_pid HOST NAME: prints the pid if that process is one of the cloud's on this host.
cloud_pid() {
	local pid=0
	read -r pid 2>/dev/null <"$cloud/$1-$2.pid" || return 1
	grep -qs "/$cgroup_name/$(cgroup_below "$1")\$" "/proc/$pid/cgroup" && echo "$pid"
}

# cloud_start HOST NAME: starts a daemon that is not alive. The pid is written before the daemon is there: an `up` that
# is killed between the two would leave a daemon of which nobody knows.
cloud_start() {
	local log
	cloud_pid "$@" >/dev/null && return
	log=$(cloud_log "$@")
	[[ ! -e $log ]] || mv "$log" "$log.old"
	rm -f "$cloud/$1-$2.pid"
	(
		cgroup_join "$(cgroup_below "$1")"
		echo "$BASHPID" >"$cloud/$1-$2.pid"
		cloud_exec "$@"
	) </dev/null >"$log" 2>&1 9>&- &
	wait_for 30 test -s "$cloud/$1-$2.pid"
}

# cloud_exec HOST NAME: becomes the daemon.
cloud_exec() {
	local host=$1 etc=$cloud/etc nova=(--config-file "$cloud/etc/nova.conf") tables=(--config-file "$cloud/etc/nova-tables.conf")
	case $2 in
	mariadbd) daemon ctl mariadbd "${mariadb[@]}" --socket=/run/openstack/mariadb.sock --pid-file=/run/openstack/mariadb.pid ;;
	epmd) daemon ctl env ERL_EPMD_ADDRESS=127.0.0.1 epmd ;;
	rabbitmq) daemon ctl env "${rabbitmq[@]}" RABBITMQ_NODE_IP_ADDRESS="$api" /usr/lib/rabbitmq/bin/rabbitmq-server ;;
	keystone) wsgi 5000 /usr/bin/keystone-wsgi-public OS_KEYSTONE_CONFIG_FILES="$etc/keystone/keystone.conf" ;;
	placement) wsgi 8778 /usr/bin/placement-api OS_PLACEMENT_CONFIG_DIR="$etc/placement" ;;
	glance) python ctl glance.cmd.api:main --config-file "$etc/glance.conf" ;;
	neutron) python ctl neutron.cmd.eventlet.server:main --config-file "$etc/neutron.conf" ;;
	nova-conductor) python ctl nova.cmd.conductor:main "${nova[@]}" "${tables[@]}" ;;
	nova-scheduler) python ctl nova.cmd.scheduler:main "${nova[@]}" "${tables[@]}" ;;
	nova-api) python ctl nova.cmd.api_os_compute:main "${nova[@]}" "${tables[@]}" ;;
	libvirtd) daemon "$host" libvirtd --config "$etc/libvirtd-$host.conf" --pid-file=/run/openstack/libvirtd.pid ;;
	linuxbridge-agent)
		python "$host" neutron.cmd.eventlet.plugins.linuxbridge_neutron_agent:main --config-file "$etc/neutron.conf" \
			--config-file "$etc/neutron-$host.conf"
		;;
	nova-compute) python "$host" nova.cmd.compute:main "${nova[@]}" --config-file "$etc/nova-$host.conf" ;;
	esac
}

# daemon HOST COMMAND...: like on_cloud, in a session of its own.
daemon() { on_cloud "$1" setsid "${@:2}"; }

# python HOST MODULE:FUNCTION [ARGUMENT]...: on nodes with the CPUs and the memory that Slurm's node has.
python() {
	local node
	node=$(grep -m1 '^NodeName=' "$slurm_conf")
	daemon "$1" env SLURMV_NODE="$node" python3 "$cloud/python/launch.py" "${@:2}"
}

# wsgi PORT PROGRAM VARIABLE=VALUE: a service that is a function of a web server. Python runs one thread at a time; the
# second works while the first waits for the database, and more than two hinder each other.
wsgi() {
	daemon ctl env "$3" uwsgi --plugins python3 --http-socket "$api:$1" --wsgi-file "$2" --processes 1 --threads 2 \
		--enable-threads --buffer-size 65535 --die-on-term --need-app --rem-header Content-Length --disable-logging \
		--so-keepalive --listen 100
}

# Nothing is flushed: a cloud whose host dies is made anew.
mariadb=(--no-defaults --user=root --datadir="$cloud/mariadb" --skip-networking --skip-log-bin
	--innodb-buffer-pool-size=64M --innodb-log-file-size=48M --innodb-flush-log-at-trx-commit=0
	--innodb-flush-method=nosync --innodb-doublewrite=0 --skip-performance-schema --max-connections=400
	--character-set-server=utf8mb3 --collation-server=utf8mb3_general_ci)

mariadb_directory() {
	(on_cloud ctl mariadb-install-db --no-defaults --user=root --datadir="$cloud/mariadb" --skip-test-db \
		--skip-name-resolve --auth-root-authentication-method=socket) </dev/null >"$cloud/log/mariadb-install-db.log" 2>&1 9>&- ||
		die "mariadb-install-db failed; see $cloud/log/mariadb-install-db.log"
}

# One thread that does not wait busily: the machine has few CPUs.
rabbitmq=(HOME="$cloud/rabbitmq" RABBITMQ_NODENAME=openstack@localhost RABBITMQ_NODE_PORT=5672
	RABBITMQ_MNESIA_BASE="$cloud/rabbitmq" RABBITMQ_LOG_BASE="$cloud/log" RABBITMQ_LOGS=-
	RABBITMQ_CONFIG_FILE="$cloud/etc/rabbitmq.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$cloud/etc/rabbitmq.plugins"
	RABBITMQ_CONF_ENV_FILE=/dev/null ERL_EPMD_ADDRESS=127.0.0.1
	RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 1:1 +SDio 4 +sbwt none +sbwtdcpu none +sbwtdio none")

# await HOST NAME: until the daemon serves. One that has died is not waited for.
await() {
	wait_for 180 served "$@" || true
	cloud_serves "$@" || cloud_failed "$@"
}

# served HOST NAME: whether the daemon serves or is dead.
served() { cloud_serves "$@" || not cloud_pid "$@"; }

cloud_serves() {
	case $2 in
	mariadbd) sql ;;
	rabbitmq) cloud_port 5672 ;;
	keystone) cloud_port 5000 ;;
	placement) cloud_port 8778 ;;
	glance) cloud_port 9292 ;;
	neutron) cloud_port 9696 ;;
	nova-api) cloud_port 8774 ;;
	nova-conductor) grep -q 'Starting conductor node' "$(cloud_log "$@")" ;;
	libvirtd) (on_cloud "$1" virsh -c qemu:///system uri) ;;
	*) cloud_pid "$@" ;;
	esac </dev/null >/dev/null 2>&1
}

cloud_port() { in_network ctl bash -c "exec 3<>/dev/tcp/$api/$1"; }

cloud_failed() {
	local log
	log=$(cloud_log "$@")
	say "the last lines of $log:"
	tail -n 20 "$log" | cut -c1-300 | sed 's/^/    /' >&2
	die "$2 on $1 does not come up; all logs are in $cloud/log"
}
