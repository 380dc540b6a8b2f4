# shellcheck shell=bash
# The packages: libraries, not the daemons' own packages. Those bring users, questions, and a nova-compute that wants
# another QEMU.

packages=(
	python3-nova python3-neutron python3-keystone python3-glance python3-placement python3-pymysql python3-libvirt
	uwsgi-core uwsgi-plugin-python3 rabbitmq-server mariadb-server
	libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients qemu-system-x86 qemu-utils
	genisoimage iptables kmod bridge-utils ipset ebtables iputils-arping # programs that they run
)

# packages_install: ends with status 69 if they cannot be had.
packages_install() {
	grep -qs '^VERSION_ID="12"' /etc/os-release ||
		unavailable "wants Debian 12, whose OpenStack it knows; this machine is another system"
	"$repo/scripts/install-packages" "${packages[@]}" ||
		unavailable "OpenStack's packages cannot be installed; see the messages of scripts/install-packages above"
	install -d -m 0700 "$kept"
	paste_files
}

# release_of: changes with the releases of the packages that make tables.
release_of() {
	dpkg-query --show --showformat='${Package} ${Version}\n' \
		python3-nova python3-neutron python3-keystone python3-glance python3-placement mariadb-server
}

# key: a short name for what stdin says.
key() { sha256sum | cut -c1-16; }

# paste: the directory of the files that say how requests pass through a service. They are in packages of the
# daemons, which are unpacked and not installed.
paste_directory() { echo "$kept/paste-$(release_of | key)"; }

paste_files() {
	local have work name
	have=$(paste_directory)
	[[ ! -e $have ]] || return 0
	rm -rf "$kept"/tmp.* # of an `up` that was killed
	work=$(mktemp -d "$kept/tmp.XXXXXX")
	(cd "$work" && apt-get -qq download -o APT::Sandbox::User=root nova-common neutron-common glance-common) ||
		unavailable "the packages nova-common, neutron-common and glance-common cannot be downloaded"
	mkdir "$work/paste"
	for name in nova neutron glance; do
		dpkg-deb -x "$work/$name"-common_*.deb "$work/$name"
		find "$work/$name" -name '*api-paste.ini' -exec cp {} "$work/paste/$name.ini" ';'
	done
	mv "$work/paste" "$have"
	rm -rf "$work"
}
