# shellcheck shell=bash
# The commands: up, run, image, status, down.

cloud_up() {
	local how=
	while (($#)); do
		case $1 in
		--agents) how=agents ;;
		*) die "up: unknown option $1; see: scripts/openstack help" ;;
		esac
		shift
	done
	packages_install
	hosts_up || hosts_start
	lock
	if cloud_complete; then
		[[ -z $how || $(plugging) == "$how" ]] ||
			die "OpenStack is up with \"$(plugging)\", not \"$how\"; to change it: scripts/openstack down"
	else
		cloud_first "${how:-static}"
	fi
	cloud_go
	touch "$(complete_mark)"
	say "up: http://$api:5000/v3; compute hosts: $(nodes | xargs); $clouds"
}

# hosts_up: whether every host of the cluster has power.
hosts_up() {
	local host
	[[ -e $complete ]] || return 1
	for host in $(cloud_hosts); do
		holder "$host" >/dev/null || return 1
	done
}

# hosts_start: a cluster of the size that it had.
hosts_start() {
	local kind count size=()
	if [[ -e $profile ]]; then
		read -r kind count <"$profile"
		size=("--$kind" "$count")
		[[ $kind != real-cpus ]] || size=(--real-cpus)
	fi
	"$repo/scripts/cluster" up "${size[@]}" || die "the cluster does not come up"
}

# cloud_complete: whether an `up` came to its end since the cluster's host ctl is up.
cloud_complete() { holder ctl >/dev/null && [[ -e $wanted && -e $(complete_mark) ]]; }

# cloud_first: from nothing to a database with the services' tables.
cloud_first() {
	cloud_clear
	install -d -m 0711 "$cloud"
	echo "$1" >"$wanted"
	cloud_join
	cloud_config
	mariadb_directory
	cloud_start ctl mariadbd
	await ctl mariadbd
	tables
}

# cloud_join: every host that has power becomes one of the cloud's.
cloud_join() {
	local host
	guest_switch
	host_first ctl
	for host in $(cloud_hosts); do
		host_join "$host"
	done
}

# cloud_go: starts what is not alive, and waits until the compute hosts take VMs. A nova-compute that starts before the
# conductor sleeps for ten seconds.
cloud_go() {
	local host name
	cloud_join
	cloud_daemons | while read -r host name; do
		[[ $name != nova-scheduler ]] || await ctl nova-conductor
		cloud_start "$host" "$name"
		[[ $name != mariadbd ]] || await "$host" "$name"
	done
	for host in $(nodes); do
		await "$host" libvirtd
	done
	cloud_daemons | while read -r host name; do
		await "$host" "$name"
	done
	cloud_seed
	libvirt_keep
}

# cloud_seed: the network, the image, the client's credentials.
cloud_seed() {
	local image hosts
	mapfile -t hosts < <(nodes)
	image=$(sed -n '/^\[images.catalogue.demo\]/,$s/^path = "\(.*\)"$/\1/p' "$dir/etc/slurm-v/slurmv.toml")
	seed network "$guest_lan"
	[[ -z $image ]] || seed image demo "$image"
	[[ -e $clouds ]] || seed clouds "$clouds"
	seed hosts "$(plugging)" "${hosts[@]}" || die "not all compute hosts are up; logs are in $cloud/log"
}

# seed COMMAND...: see openstack.d/python/seed.py.
seed() {
	(on_cloud ctl env SLURMV_AUTH="http://$api:5000/v3" SLURMV_PASSWORD="$(password)" \
		python3 "$cloud/python/seed.py" "$@") </dev/null 9>&-
}

# libvirt_keep: what libvirtd has found out about QEMU, which takes it eight seconds.
libvirt_keep() {
	mkdir -p "$kept/libvirt"
	cp -ru "$cloud/n1/var-cache-libvirt/." "$kept/libvirt/"
}

cloud_run() {
	[[ ${1:-} != -- ]] || shift
	(($#)) || die "run: no command; try: scripts/openstack run -- cat $clouds"
	cloud_complete || die "OpenStack is not up; start it with: scripts/openstack up"
	login ctl root OS_CLIENT_CONFIG_FILE="$clouds" OS_CLOUD=slurmv -- "$@"
}

cloud_leaks() {
	cloud_complete || die "OpenStack is not up; start it with: scripts/openstack up"
	seed leaks
}

cloud_image() {
	(($# >= 2)) || die "usage: scripts/openstack image NAME FILE [PROPERTY=VALUE]..."
	local name=$1 file=$2
	[[ -r $file ]] || die "image: $file cannot be read"
	cloud_complete || die "OpenStack is not up; start it with: scripts/openstack up"
	seed image "$name" "$(realpath -- "$file")" "${@:3}"
}

cloud_status() {
	(($# == 0)) || die "status takes no arguments"
	local host name pid well=true
	if [[ ! -e $wanted ]] || ! holder ctl >/dev/null; then
		say "there is no OpenStack in $cloud; start it with: scripts/openstack up"
		exit 3
	fi
	while read -r host name; do
		pid=$(cloud_pid "$host" "$name") || {
			pid=dead
			well=false
		}
		printf '%-4s %-17s %8s  %s\n' "$host" "$name" "$pid" "$(cloud_log "$host" "$name")"
	done < <(cloud_daemons)
	cloud_complete || well=false
	$well || {
		say "not well: scripts/openstack up starts again what is dead"
		exit 1
	}
}

cloud_down() {
	local keep=()
	case ${1:-} in
	'') ;;
	--keep-logs) keep=(! -name log) ;;
	*) die "down: unknown option $1; see: scripts/openstack help" ;;
	esac
	[[ -e $dir ]] || return 0
	lock
	cloud_clear "${keep[@]}"
}

# cloud_clear [FIND-TEST]...: takes the cloud from the cluster. Of its files those stay that fail the test.
cloud_clear() {
	local host
	for host in $(cloud_hosts); do
		host_leave "$host"
	done
	if [[ -e $(netns sw) ]] && in_network sw ip link show br-cloud >/dev/null 2>&1; then
		in_network sw ip link delete br-cloud
	fi
	[[ ! -e $cloud ]] || find "$cloud" -mindepth 1 -maxdepth 1 "$@" -exec rm -rf --one-file-system {} +
	rmdir --ignore-fail-on-non-empty "$cloud" 2>/dev/null || true
}
