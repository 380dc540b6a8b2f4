# shellcheck shell=bash
# What everything of the cluster is called. Several clusters may be up on a machine, each with a directory
# of its own.

# Tests run many commands on the hosts, so the way to them has few processes: `cd` takes a third of realpath's time.
dir=${SLURMV_CLUSTER_DIR:-/var/lib/slurmv-cluster}
if [[ -d $dir ]]; then
	dir=$(CDPATH='' cd -P -- "$dir" && pwd)
else
	dir=$(realpath -m -- "$dir")
fi
[[ $dir =~ ^/[A-Za-z0-9._/+-]{1,80}$ ]] ||
	die "SLURMV_CLUSTER_DIR=$dir: want a path of at most 80 letters, digits and ._/+-, since it goes into slurm.conf"
case $dir/ in
/run/* | /dev/* | /sys/* | /proc/*) die "SLURMV_CLUSTER_DIR=$dir: /run, /dev, /sys and /proc are private to the hosts of the cluster; choose another place" ;;
esac

marker=$dir/.slurmv-cluster   # this directory is ours to delete
profile=$dir/profile          # what `up` was asked for: "nodes N" or "real-cpus 1"
prefix=$dir/usr
state=$dir/state # of Slurm-V, by nodes
if [[ ${SLURMV_INSTALLED:-$prefix} != "$prefix" ]]; then
	prefix=$SLURMV_INSTALLED state=/var/lib/slurmv
fi
server=$dir/server # what a file server has
shared=$dir/shared # where the hosts see it
slurm_conf=$dir/etc/slurm/slurm.conf
read -r id _ < <(cksum <<<"$dir")
ns=svc-$id                      # its network namespaces are $ns-HOST
cgroup_name=slurmv-cluster-$id
cluster_name=slurmv-$id        # VMs of clusters with one name would be taken for each other's
lan=10.77.0      # the hosts: ctl .10, n1 .11 ...
site_lan=10.78.0 # the network whose DHCP server stands for the site's
users=(alice:6001 bob:6002)
node_gres=vf:16,vfbw:200000 # two bridges that stand for cards, each with 8 VFs and 100 Gb/s

# netns HOST: the file of a host's network namespace.
netns() { echo "/run/netns/$ns-$1"; }

# in_network HOST COMMAND...: like `ip netns exec`, but leaves /sys and all other mounts as they are.
in_network() {
	local host=$1
	shift
	nsenter --net="$(netns "$host")" "$@"
}

# address HOST: its address on the cluster's network.
address() {
	case $1 in
	ctl) echo "$lan.10" ;;
	*) echo "$lan.$((10 + ${1#n}))" ;;
	esac
}

# mac HOST: its MAC address on the cluster's network.
mac() {
	local numbers
	IFS=. read -ra numbers <<<"$(address "$1")"
	printf '0a:51:%02x:%02x:%02x:%02x' "${numbers[@]}"
}

# nodes: the names of the nodes of the profile, one a line.
nodes() {
	local kind count
	read -r kind count <"$profile" || return 0
	[[ -z $kind ]] || seq -f 'n%.0f' "$count"
}

# our_namespaces: those of this cluster, also half-made ones of a start that was cut off.
our_namespaces() {
	local path
	for path in "/run/netns/$ns"-*; do
		[[ ! -e $path ]] || echo "${path##*/}"
	done
}

# up_elsewhere: the processes of a cluster of this directory whose network namespaces have no names here,
# as in a container beside this one.
up_elsewhere() {
	[[ -n $(our_namespaces) ]] || members none "$cgroup_name" | sort -nu | xargs
}

# lock: serialises up and down of one cluster through its directory, whose inode a `down` may have
# replaced while we waited. The lock is file descriptor 9: daemons must be started with 9>&-.
lock() {
	while :; do
		mkdir -p "$dir"
		exec 9<"$dir"
		flock --nonblock 9 || {
			say "waiting for another up or down of this cluster"
			flock 9
		}
		[[ $dir -ef /proc/self/fd/9 ]] && return
	done
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
	local end=$((SECONDS + $1 * ${SLURMV_PATIENCE:-1}))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		sleep 0.05
	done
}
