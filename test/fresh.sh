#!/bin/bash
# What tests in a Debian with nothing installed have in common: test/admin, test/packages, test/rpm and test/systemd source this.

say() { printf '\n=== %s\n' "$*"; }
die() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# nobody_answers: apt asks nothing, starts no service, and lets a file stay that the administrator has changed.
nobody_answers() {
	export DEBIAN_FRONTEND=noninteractive
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 0755 /usr/sbin/policy-rc.d
	printf '%s\n' 'APT::Get::Assume-Yes "true";' 'Dpkg::Use-Pty "0";' 'Dpkg::Options { "--force-confold"; };' >/etc/apt/apt.conf.d/99answers
}

# do_as_told DIRECTORY: does in a directory what stdin says. What programs print is shown if one fails.
do_as_told() {
	local told
	told=$(cat)
	(cd "$1" && bash -ex -c "$told") >/tmp/told.log 2>&1 </dev/null || { tail -n 30 /tmp/told.log && exit 1; }
}

# block SECTION TEXT: what administrators read in docs/admin.md, but for what is for RHEL.
block() { test/block "$@" | grep -vE '^(dnf|firewall-cmd) '; }

# on_nodes: does as root on each node what stdin says.
on_nodes() {
	local node told
	told=$(cat)
	for node in n1 n2; do
		echo "$node: $told"
		scripts/cluster run --user root --node "$node" -- bash -e -c "$told"
	done
}

# ours: our packages.
ours() { dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Status}\n' 'slurm-v*' 2>/dev/null || true; }

# build_packages RELEASE DIRECTORY: of the checkout, and the image with their slurmv-guest, in the release's own root.
build_packages() {
	rm -rf "$2"
	# shellcheck disable=SC2016 # for the shell in the root
	scripts/release "$1" -- sh -ec '
		scripts/install-packages debhelper
		scripts/package deb "$1"
		rm "$1"/*-dbgsym_*
		cp --sparse=always "$(scripts/guest-image)" "$1/image.qcow2"' sh "$2"
}

# install_packages DIRECTORY: those that were built there, and their image as $SLURMV_GUEST_IMAGE.
install_packages() {
	mkdir -p /images
	cp --sparse=always "$1/image.qcow2" /images/new
	mv /images/new "$SLURMV_GUEST_IMAGE"
	rm -rf /srv/checkout
	mkdir -p /srv/checkout/build/packages
	cp "$1"/*.deb /srv/checkout/build/packages
	block "Packages" 'apt install' | do_as_told /srv/checkout
	ours
}
