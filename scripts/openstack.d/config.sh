# shellcheck shell=bash
# The services' configuration, under <cluster>/openstack/etc.

cloud_config() {
	local host
	mkdir -p "$cloud"/etc/{keystone,placement} "$cloud"/{log,home,images,state,rabbitmq}
	rm -rf "$cloud/python"
	cp -r "$ours/python" "$cloud/python" # the hosts may not see the checkout
	cp -r "$(paste_directory)" "$cloud/etc/paste.new" && rm -rf "$cloud/etc/paste" && mv "$cloud/etc/paste.new" "$cloud/etc/paste"
	keystone_text | cloud_put keystone/keystone.conf
	placement_text | cloud_put placement/placement.conf
	glance_text | cloud_put glance.conf
	nova_text | cloud_put nova.conf
	nova_tables_text | cloud_put nova-tables.conf
	neutron_text | cloud_put neutron.conf
	rabbitmq_text | cloud_put rabbitmq.conf
	echo '[].' | cloud_put rabbitmq.plugins
	for host in $(nodes); do
		compute_text "$host" | cloud_put "nova-$host.conf"
		agent_text "$host" | cloud_put "neutron-$host.conf"
		libvirtd_text "$host" | cloud_put "libvirtd-$host.conf"
		qemu_text >"$cloud/$host/etc-libvirt/qemu.conf"
	done
	keystone_keys
}

# cloud_put FILE: stdin becomes <cluster>/openstack/etc/FILE. The files have the password in them.
cloud_put() { (umask 077 && cat >"$cloud/etc/$1"); }

database_url() { echo "mysql+pymysql://root@localhost/$1?unix_socket=/run/openstack/mariadb.sock&charset=utf8"; }

rabbit_url() { echo "rabbit://slurmv:$(password)@$api:5672/"; }

# user_text SECTION: how a service shows the others who it is. All are the administrator.
user_text() {
	cat <<END
[$1]
auth_url = http://$api:5000/v3
auth_type = password
user_domain_name = Default
project_domain_name = Default
project_name = admin
username = admin
password = $(password)
region_name = RegionOne
END
}

# token_text: how a service checks its clients' tokens.
token_text() {
	user_text keystone_authtoken
	echo "www_authenticate_uri = http://$api:5000/v3"
	echo "service_token_roles_required = false"
}

# keystone_text: cheap hashes; the only password is one of a machine. Without the cache, which is in keystone's only
# process, the check of one token is 450 queries and more than a second of CPU.
keystone_text() {
	cat <<END
[DEFAULT]
use_stderr = true
[database]
connection = $(database_url keystone)
[token]
expiration = 86400
[fernet_tokens]
key_repository = $cloud/etc/keystone/keys
[fernet_receipts]
key_repository = $cloud/etc/keystone/keys
[credential]
key_repository = $cloud/etc/keystone/keys
[cache]
enabled = true
backend = dogpile.cache.memory
[identity]
password_hash_rounds = 4
END
}

# keystone_keys: what `keystone-manage fernet_setup` makes.
keystone_keys() {
	local number
	[[ ! -e $cloud/etc/keystone/keys/1 ]] || return 0
	(
		umask 077
		mkdir -p "$cloud/etc/keystone/keys"
		for number in 0 1; do
			head -c 32 /dev/urandom | base64 | tr +/ -_ >"$cloud/etc/keystone/keys/$number"
		done
	)
}

placement_text() {
	cat <<END
[DEFAULT]
use_stderr = true
[api]
auth_strategy = keystone
[placement_database]
connection = $(database_url placement)
$(token_text)
END
}

glance_text() {
	cat <<END
[DEFAULT]
bind_host = $api
bind_port = 9292
workers = 0
use_stderr = true
[database]
connection = $(database_url glance)
[glance_store]
stores = file
default_store = file
filesystem_store_datadir = $cloud/images
[paste_deploy]
flavor = keystone
config_file = $cloud/etc/paste/glance.ini
$(token_text)
END
}

# nova_text: of all of nova's services. Without periodic_fuzzy_delay a new compute host could wait a minute for its
# discovery. The ratios let nova start a VM where it still counts one that has ended: Slurm decides what fits.
nova_text() {
	local patience=120
	[[ $(plugging) == agents ]] || patience=0
	cat <<END
[DEFAULT]
transport_url = $(rabbit_url)
state_path = $cloud/state
use_stderr = true
enabled_apis = osapi_compute
osapi_compute_listen = $api
osapi_compute_workers = 1
reserved_host_memory_mb = 0
reserved_host_disk_mb = 0
cpu_allocation_ratio = 2
ram_allocation_ratio = 2
disk_allocation_ratio = 10
force_config_drive = true
force_raw_images = false
vif_plugging_timeout = $patience
vif_plugging_is_fatal = $([[ $patience == 0 ]] && echo false || echo true)
heal_instance_info_cache_interval = 600
report_interval = 10
service_down_time = 120
periodic_fuzzy_delay = 0
[wsgi]
api_paste_config = $cloud/etc/paste/nova.ini
[api]
auth_strategy = keystone
[conductor]
workers = 1
[scheduler]
workers = 1
max_attempts = 1
discover_hosts_in_cells_interval = 2
[filter_scheduler]
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,PciPassthroughFilter
track_instance_changes = false
[quota]
instances = -1
cores = -1
ram = -1
recheck_quota = false
[glance]
api_servers = http://$api:9292
[libvirt]
virt_type = qemu
cpu_mode = none
[vnc]
enabled = false
[oslo_concurrency]
lock_path = $cloud/state/lock
[oslo_messaging_notifications]
driver = noop
[cinder]
catalog_info = volumev3::publicURL
$(token_text)
$(user_text placement)
$(user_text neutron)
$(user_text service_user)
END
}

# nova_tables_text: apart, because a nova-compute must have no database.
nova_tables_text() {
	cat <<END
[api_database]
connection = $(database_url nova_api)
[database]
connection = $(database_url nova)
END
}

# compute_text HOST: what a nova-compute has of its own. Where the card is, slurmv_compute.py says.
compute_text() {
	cat <<END
[DEFAULT]
host = $1
my_ip = $(address "$1")
compute_driver = slurmv_compute.Node
state_path = $cloud/$1/state
instances_path = $cloud/$1/instances
[oslo_concurrency]
lock_path = $cloud/$1/state/lock
[pci]
device_spec = {"address": "0000:01:00.*", "physical_network": "guests"}
END
}

# neutron_text: of the server and of the agents. The agents are experimental in this release.
neutron_text() {
	local driver=slurmv
	[[ $(plugging) != agents ]] || driver=slurmv_direct,linuxbridge
	cat <<END
[DEFAULT]
core_plugin = ml2
service_plugins = qos
transport_url = $(rabbit_url)
state_path = $cloud/state
use_stderr = true
bind_host = $api
api_workers = 0
rpc_workers = 0
rpc_state_report_workers = 0
api_paste_config = $cloud/etc/paste/neutron.ini
send_events_interval = 0
agent_down_time = 120
[database]
connection = $(database_url neutron)
[experimental]
linuxbridge = true
[agent]
root_helper = env
report_interval = 20
polling_interval = 1
[oslo_concurrency]
lock_path = $cloud/state/lock
[oslo_messaging_notifications]
driver = noop
[ml2]
type_drivers = flat,local
tenant_network_types = local
mechanism_drivers = $driver
extension_drivers = port_security,qos
[ml2_type_flat]
flat_networks = guests
[securitygroup]
enable_security_group = false
firewall_driver = noop
[linux_bridge]
physical_interface_mappings = guests:cloudp
[vxlan]
enable_vxlan = false
$(privsep_text)
$(token_text)
$(user_text nova)
$(user_text placement)
END
}

# privsep_text: how neutron's agent, which is root already, starts its privileged helpers.
privsep_text() {
	printf "[%s]\nhelper_command = /usr/bin/python3 /usr/bin/privsep-helper --config-file $cloud/etc/neutron.conf\n" \
		privsep privsep_link privsep_namespace
}

# agent_text NODE: what neutron's agent there has of its own.
agent_text() {
	cat <<END
[DEFAULT]
host = $1
state_path = $cloud/$1/state
[oslo_concurrency]
lock_path = $cloud/$1/state/lock
END
}

# libvirtd_text NODE: each host has a number of its own, as if it were a machine.
libvirtd_text() {
	echo 'auth_unix_rw = "none"'
	echo 'listen_tls = 0'
	echo "host_uuid = \"$(cat /proc/sys/kernel/random/uuid)\""
}

# qemu_text: the guests stay in libvirtd's cgroup, which `down` empties. A file takes the console in place of
# virtlogd, which Debian's unit would start.
qemu_text() {
	cat <<'END'
security_driver = "none"
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
END
}

rabbitmq_text() {
	cat <<END
default_user = slurmv
default_pass = $(password)
loopback_users = none
log.console = true
log.console.level = warning
log.file = false
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 100MB
END
}
