#!/bin/sh
# Starts slurmv-guest from the seed disk. cloud-init runs this early in every boot, in some
# versions twice. It waits until no process has this script's standard output open any more.

dir=/run/slurmv-guest

say() {
	echo "slurm-v: $*" >/dev/console 2>/dev/null
}

fail() {
	say "$* (slurmv-guest is not started)"
	exit 1
}

# An image may contain slurmv-guest already. Two of them could not open the one port.
if grep -qsx slurmv-guest /proc/[0-9]*/comm; then
	exit 0
fi
systemd=
if [ -d /run/systemd/system ]; then
	systemd=yes
	if systemctl is-enabled --quiet slurmv-guest.service 2>/dev/null; then
		exit 0
	fi
fi
mkdir "$dir" 2>/dev/null || exit 0

# The program goes to a tmpfs of its own: some distributions mount /run noexec, and the root
# file system may be read-only.
mount -t tmpfs -o mode=0755,size=64m slurmv-guest "$dir" || fail "cannot mount a tmpfs on $dir"
mkdir "$dir/seed"
mount -o ro LABEL=cidata "$dir/seed" || mount -o ro /dev/disk/by-label/cidata "$dir/seed" ||
	fail "cannot mount the seed disk"
cp "$dir/seed/slurmv-guest" "$dir/slurmv-guest" || fail "cannot copy slurmv-guest from the seed disk"
chmod 0755 "$dir/slurmv-guest"
umount "$dir/seed"

# With SELinux in enforcing mode, systemd may not run files with the label of /run.
chcon -t bin_t "$dir/slurmv-guest" 2>/dev/null

# The unit has no default dependencies, because they would make it wait until cloud-init is
# done. It only has to start after the mounts of /etc/fstab and after /tmp was emptied.
if [ -n "$systemd" ] && systemd-run --quiet --no-block --unit=slurmv-guest-seed \
	--description="Slurm-V guest agent (from the seed disk)" \
	-p DefaultDependencies=no -p Conflicts=shutdown.target -p Before=shutdown.target \
	-p After=local-fs.target -p After=systemd-tmpfiles-setup.service \
	-p Delegate=yes -p TasksMax=infinity -p LimitNOFILE=1048576 -p LimitMEMLOCK=infinity \
	-p Restart=on-failure \
	"$dir/slurmv-guest" </dev/null >/dev/null 2>&1; then
	exit 0
fi
if command -v setsid >/dev/null; then
	setsid "$dir/slurmv-guest" </dev/null >/dev/console 2>&1 &
else
	"$dir/slurmv-guest" </dev/null >/dev/console 2>&1 &
fi
