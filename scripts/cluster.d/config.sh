# shellcheck shell=bash
# The files under <cluster>/etc, which the hosts see as their /etc/slurm, /etc/passwd and so on.

# config_write: writes them all. A file is replaced only when its text changes, so that its time tells
# a running daemon what is new.
config_write() {
	mkdir -p "$dir"/etc/{slurm,slurm-v,sudoers.d}
	chmod 0755 "$dir"/etc/sudoers.d
	account_files
	network_files
	slurm_conf_text | config_put slurm/slurm.conf
	cgroup_conf_text | config_put slurm/cgroup.conf
	gres_conf_text | config_put slurm/gres.conf
	slurmdbd_conf_text | config_put slurm/slurmdbd.conf 0600 slurm
	plugstack_text | config_put slurm/plugstack.conf
	job_submit_text | config_put slurm/job_submit.lua
	database_text | config_put database.sql
	[[ -e $dir/etc/slurm-v/fabric.key ]] || fabric_key_text | config_put slurm-v/fabric.key 0640 root:slurm
}

# fabric_key_text: the key with which slurmctld's scripts seal the tags of jobs for the nodes.
fabric_key_text() {
	head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'
}

# config_put FILE [MODE [OWNER]]: stdin becomes <cluster>/etc/FILE, unless the site has its own.
config_put() {
	local file=$dir/etc/$1
	of_site "$1" >"$file.new"
	chmod "${2:-0644}" "$file.new"
	chown "${3:-root}" "$file.new"
	if cmp -s "$file.new" "$file"; then
		rm "$file.new"
	else
		mv "$file.new" "$file"
	fi
}

# of_site FILE: stdin, or what SLURMV_SITE has in its place. The site's slurm.conf has only what an administrator adds.
of_site() {
	local own=${SLURMV_SITE:-}/$1
	if [[ -z ${SLURMV_SITE:-} || ! -e $own ]]; then
		cat
	elif [[ $1 == slurm/slurm.conf ]]; then
		awk -F= 'NR == FNR { own[$1]; print; next } !($1 in own)' "$own" -
	else
		cat >/dev/null # whoever writes it must not be killed by SIGPIPE
		cat "$own"
	fi
}

# account_files: the machine's accounts with ours in place of those of the same name or number.
account_files() {
	local user name id names='' ids=''
	for user in "${users[@]}"; do
		names+="|${user%:*}"
		ids+="|${user#*:}"
	done
	for file in passwd group shadow; do
		{
			awk -F: -v names="^(${names#|})\$" -v ids="^(${ids#|})\$" -v file="$file" \
				'$1 !~ names && (file == "shadow" || $3 !~ ids)' "/etc/$file"
			for user in "${users[@]}"; do
				name=${user%:*} uid=${user#*:}
				case $file in
				passwd) echo "$name:x:$uid:$uid:${name^} of Slurm-V's cluster:$dir/home/$name:/bin/bash" ;;
				group) echo "$name:x:$uid:" ;;
				shadow) echo "$name:*:19000:0:99999:7:::" ;;
				esac
			done
			libvirt_account "$file"
		} | config_put "$file" "$(stat -c %a "/etc/$file")"
		chgrp --reference="/etc/$file" "$dir/etc/$file"
	done
}

# libvirt_account FILE: the account that libvirt's QEMU driver wants to exist, as Debian's package
# libvirt-daemon-system makes it. That package brings services, so it is not installed.
libvirt_account() {
	grep -q '^libvirt-qemu:' "/etc/$1" && return
	case $1 in
	passwd) echo "libvirt-qemu:x:64055:64055:Libvirt Qemu:/var/lib/libvirt:/usr/sbin/nologin" ;;
	group) echo "libvirt-qemu:x:64055:" ;;
	esac
}

# accounts_make: the users' homes, which all hosts share, and the key by which the hosts know each other.
accounts_make() {
	local user
	for user in "${users[@]}"; do
		[[ -d $dir/home/${user%:*} ]] || install -d -m 0700 -o "${user#*:}" -g "${user#*:}" "$dir/home/${user%:*}"
	done
	install -m 0400 -o munge -g munge /dev/null "$dir/etc/munge/munge.key"
	head -c 128 /dev/urandom >"$dir/etc/munge/munge.key"
	install -d -o slurm -g slurm "$dir/spool/ctl"
}

# network_files: the hosts know each other; names of the outside get a quick "no".
network_files() {
	local host
	{
		echo "127.0.0.1 localhost"
		echo "::1 localhost ip6-localhost ip6-loopback"
		for host in ctl $(nodes); do
			echo "$(address "$host") $host"
		done
	} | config_put hosts
	printf '%s\n' 'passwd: files' 'group: files' 'shadow: files' 'hosts: files dns' 'networks: files' 'protocols: files' 'services: files' |
		config_put nsswitch.conf
	echo "# the cluster's hosts do not reach the outside" | config_put resolv.conf
}

# slurm_conf_text: the timers are short, for tests of how jobs end and of lost nodes; cred_expire is
# also how long a requeued job waits before it starts again. Memory is a
# resource of its own, as on sites where users share nodes; DefMemPerCPU keeps a job that asks for
# none from taking all of it. Two cores that emulate eight VMs can keep slurmctld from answering for
# longer than Slurm's 10 s, and a slurmstepd whose last message was not answered sends it again after a
# minute: with less patience the node would be drained for it.
slurm_conf_text() {
	cat <<END
ClusterName=$cluster_name
SlurmctldHost=ctl($(address ctl))
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=cred_expire=30
CredType=cred/munge

StateSaveLocation=$dir/spool/ctl
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=verbose

ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=10
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PropagateResourceLimitsExcept=MEMLOCK
MpiDefault=none
JobRequeue=1
PlugStackConfig=$dir/etc/slurm/plugstack.conf
JobSubmitPlugins=lua
GresTypes=vf,vfbw

KillWait=10
UnkillableStepTimeout=180
MessageTimeout=30
MinJobAge=3600
SlurmdTimeout=300
SlurmctldTimeout=10
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=2

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageTRES=gres/vf,gres/vfbw

$(slurmctld_scripts_text)
$(slurm_nodes_text)
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefMemPerCPU=500 State=UP
END
}

# slurmctld_scripts_text: the scripts that give jobs their tags on the fabric. They do nothing for jobs
# that want none. Without an installation there are none.
slurmctld_scripts_text() {
	local ours=$prefix/libexec/slurm-v
	[[ -e $ours/prolog-slurmctld ]] || return 0
	echo "PrologSlurmctld=$ours/prolog-slurmctld"
	echo "EpilogSlurmctld=$ours/epilog-slurmctld"
}

# slurm_nodes_text: nodes that own the machine's CPUs, or that imagine more than there are.
slurm_nodes_text() {
	local kind count first last cpus=${SLURMV_NODE_CPUS:-8}
	read -r kind count <"$profile"
	if [[ $kind == real-cpus ]]; then
		slurmd -C | sed -n "s/^NodeName=[^ ]*/NodeName=n1 NodeHostname=n1 NodeAddr=$(address n1) Gres=$node_gres/p"
		return
	fi
	first=$(address n1) last=$(address "n$count")
	echo "SlurmdParameters=config_overrides"
	echo "NodeName=n[1-$count] NodeAddr=$lan.[${first##*.}-${last##*.}] CPUs=$cpus CoresPerSocket=$cpus RealMemory=$((1000 * cpus)) Gres=$node_gres"
}

# gres_conf_text: what slurmv vf gres-conf prints on a node.
gres_conf_text() {
	local node gres
	for node in $(nodes); do
		for gres in ${node_gres//,/ }; do
			echo "NodeName=$node Name=${gres%:*} Count=${gres#*:} Flags=CountOnly"
		done
	done
}

cgroup_conf_text() {
	local kind cores=no
	read -r kind _ <"$profile"
	[[ $kind != real-cpus ]] || cores=yes
	cat <<END
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=$cores
ConstrainRAMSpace=yes
END
	if unified; then # the hosts have no systemd of their own to ask
		printf '%s\n' CgroupPlugin=cgroup/v2 IgnoreSystemd=yes
		[[ $(slurmd -V) != "slurm 22."* ]] || echo CgroupAutomount=yes # defunct in newer Slurms
	else
		echo CgroupPlugin=cgroup/v1
	fi
}

slurmdbd_conf_text() {
	cat <<END
AuthType=auth/munge
DbdHost=ctl
SlurmUser=slurm
PidFile=/run/slurm/slurmdbd.pid
LogFile=$dir/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
END
}

# plugstack_text: `required`, so that a job for VMs never runs on the bare node by mistake. A stack
# that names a missing plugin would keep slurmd from starting.
plugstack_text() {
	if [[ ${SLURMV_PLUGIN:-} == none ]]; then
		echo "# no plugin, for comparison"
	elif [[ -e $plugin ]]; then
		echo "required $plugin config=$dir/etc/slurm-v/slurmv.toml"
	else
		echo "# $plugin is not installed"
	fi
}

# job_submit_text: what a site's own file looks like when it calls ours. slurmctld reads the file again
# when it changes, so the sum of ours is in it.
job_submit_text() {
	local ours=$prefix/share/slurm-v/job_submit.lua
	if [[ -e $ours ]]; then
		echo "slurmv_gres = true"
		echo "dofile(\"$ours\") -- $(cksum <"$ours")"
	else
		printf 'function slurmv_job_submit(job_desc)\n\treturn slurm.SUCCESS\nend\n'
	fi
	cat <<'END'

function slurm_job_submit(job_desc, part_list, submit_uid)
	if slurmv_job_submit(job_desc) ~= slurm.SUCCESS then
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return slurm.SUCCESS
end
END
}

# database_text: slurmdbd is known by its user id on the socket; there is no password.
database_text() {
	cat <<END
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
END
}
