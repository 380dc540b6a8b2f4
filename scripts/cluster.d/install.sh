# shellcheck shell=bash
# The build: the programs of this checkout under <cluster>/usr and their configuration.

plugin=$prefix/lib/slurm-v/slurmv.so
installed=$dir/run/installed # as old as the newest file of the build that is installed

# build_is_new: whether something is to be installed: the checkout has files younger than what is
# installed, build products aside, or the default image is not the one wanted.
build_is_new() {
	local image
	[[ -e $installed ]] || return 0
	image=$(sed -n '/^\[images.catalogue.demo\]/,$s/^path = "\(.*\)"$/\1/p' "$dir/etc/slurm-v/slurmv.toml")
	[[ -z $image || -e $image ]] || return 0
	case ${SLURMV_GUEST_IMAGE:-$image} in
	"$image") ;;
	none) [[ -z $image ]] || return 0 ;;
	*) return 0 ;;
	esac
	[[ -n $(find "$repo" \( -path "$repo/.git" -o -path "$repo/build" \) -prune -o -newer "$installed" -print -quit) ]]
}

# install_build: the programs, then the configuration. The stamp is as old as the start, so that a file
# saved during the build is seen by the next `up`. The paths of this cluster are compiled in, so its
# objects are apart from those of other builds of the checkout.
install_build() {
	local image log=$dir/log/install.log
	touch "$installed.new"
	if [[ -z ${SLURMV_INSTALLED:-} && -e $repo/Makefile ]]; then
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$repo" install ${SLURMV_TAGS:+TAGS="libvirt_dlopen,$SLURMV_TAGS"} BUILD="build/cluster-$id" DESTDIR= PREFIX="$prefix" \
			SYSCONFDIR="$dir/etc" STATEDIR="$state/%n" </dev/null >"$log" 2>&1 || failed "make install" "$log"
	fi
	image=$(guest_image) || exit 1
	[[ -z $image ]] || image_usable "$image"
	slurmv_toml_text "$image" | config_put slurm-v/slurmv.toml
	mv "$installed.new" "$installed"
}

# image_usable IMAGE: ends with an error if the users of the cluster have no use of it.
image_usable() {
	case $1 in
	"$dir"/*) ;;
	/tmp/* | /run/* | /dev/*) die "the default image $1: nodes have a /tmp, /run and /dev/shm of their own; put it elsewhere" ;;
	esac
	setpriv --reuid "${users[0]#*:}" --clear-groups test -r "$1" ||
		die "the default image $1 does not exist or cannot be read by ordinary users"
}

# guest_image: prints the path of the default image, nothing if there is none.
guest_image() {
	local guest=$prefix/libexec/slurm-v/slurmv-guest more=()
	case ${SLURMV_GUEST_IMAGE:-} in
	none) ;;
	?*) realpath -m -- "$SLURMV_GUEST_IMAGE" ;;
	*)
		[[ -x $repo/scripts/guest-image ]] || return 0
		[[ ! -e $guest ]] || more=(--guest "$guest")
		"$repo/scripts/guest-image" "${more[@]}" </dev/null | tail -n 1 ||
			die "scripts/guest-image failed; see its messages above. SLURMV_GUEST_IMAGE=none does without it"
		;;
	esac
}

# emulator: prints the path of SLURMV_EMULATOR. A script comes along, because the checkout may be in /tmp, and nodes have a
# /tmp of their own.
emulator() {
	local copy=$prefix/libexec/${SLURMV_EMULATOR##*/}
	if [[ $(head -c 2 -- "$SLURMV_EMULATOR") == '#!' ]]; then
		install -D -m 0755 -- "$SLURMV_EMULATOR" "$copy"
		echo "$copy"
	else
		realpath -- "$SLURMV_EMULATOR"
	fi
}

# backend_text: who makes the VMs, and what they are connected to. scripts/openstack has the other side.
backend_text() {
	if [[ ${SLURMV_BACKEND:-} == openstack ]]; then
		cat <<-END
			[backend]
			type = "openstack"
			clouds_file = "$dir/openstack/clouds.yaml"
			cloud = "slurmv"
			label = "$id"
			vf_network = "guests"

			[network.default]
			type = "neutron"
			neutron = "guests"
			subnet = "10.79.0.0/16"
		END
		return
	fi
	cat <<-END
		[fabric.vlan]
		pool = "2000-2999"

		[network.site]
		type = "bridge"
		bridge = "br-site"
		addresses = "dhcp"

		[network.out]
		type = "job"
		egress = ["ctl:7001-7009", "$lan.0/24:7011"]

		[vf.software.vf0]
		bridge = "br-vf0"
		rate = "100g"
		vfs = 8

		[vf.software.vf1]
		bridge = "br-vf1"
		rate = "100g"
		vfs = 8
	END
}

# slurmv_toml_text IMAGE: the configuration of Slurm-V itself.
slurmv_toml_text() {
	cat <<END
[paths]
state = "$state/%n"
run = "/run/slurmv/%n"

[slurm]
resources = "job_submit"
gres = true
qemu_overhead = "448M" # QEMU's emulation needs more than KVM, and small VMs have little to spare

$(backend_text)

[fabric]
key = "$dir/etc/slurm-v/fabric.key"
cooling = 1

[fabric.vni]
pool = "1024-1055"
per_job = 0 # the nodes have no Slingshot cards; tests put a library there that says otherwise
libcxi = "/run/libcxi/libcxi.so.1"

[ivshmem]
device = "${SLURMV_IVSHMEM_DEVICE:-auto}"
huge_page = "2M" # of which the machine has none unless somebody has reserved some

[vf]
reserve = 0
subnet = "172.29.0.0/16"
requeue = true

END
	[[ -z ${SLURMV_IMAGE_MODE:-} ]] || printf '\n[images]\nmode = "%s"\n' "$SLURMV_IMAGE_MODE"
	[[ -z ${SLURMV_EMULATOR:-} ]] || printf '\n[qemu]\nemulator = "%s"\n' "$(emulator)"
	printf '\n[defaults]\nready_timeout = 1800 # an emulated VM may have an eighth of a CPU, as among the scenarios\n'
	[[ -z $1 ]] || cat <<END
image = "demo"

[images.catalogue.demo]
path = "$1"
END
}
