# shellcheck shell=bash
# What everything of the cloud is called. Most names are those of scripts/cluster.

cloud=$dir/openstack
kept=${SLURMV_CACHE:-/var/cache/slurmv-build}/openstack # what the next `up` can use
wanted=$cloud/wanted                                     # what `up` was asked for
clouds=$cloud/clouds.yaml

api=$(address ctl)
guest_lan=10.79 # /16; the guests get 10.79.1.1 to 10.79.9.254

# guest_address HOST: its address on the guests' network.
guest_address() {
	local lan_address
	lan_address=$(address "$1")
	echo "$guest_lan.0.${lan_address##*.}"
}

# plugging: who plugs in the guests, "static" or "agents".
plugging() { cat "$wanted"; }

# complete_mark: a file that says that `up` came to its end. It goes with the host ctl.
complete_mark() { echo "/proc/$(holder ctl)/root/run/openstack/complete"; }

# password: the one of the services among themselves. The tables in the cache depend on it.
password() {
	[[ -s $kept/password ]] || (umask 077 && head -c 16 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$kept/password")
	cat "$kept/password"
}
