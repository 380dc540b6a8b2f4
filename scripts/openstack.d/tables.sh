# shellcheck shell=bash
# The services' tables in MariaDB. To make them takes half a minute, so they are kept for the next `up`.

schemas=(keystone placement glance nova_api nova nova_cell0 neutron)

# tables_kept: the file of the tables that fit these packages, this script and the password, which is in them.
tables_kept() { echo "$kept/tables-$( (release_of && password && cat "$ours/tables.sh") | key).sql.gz"; }

# tables: makes them, or takes those that were kept.
tables() {
	local file schema
	file=$(tables_kept)
	for schema in "${schemas[@]}"; do
		echo "CREATE DATABASE $schema CHARACTER SET utf8mb3;"
	done | sql
	if [[ -e $file ]]; then
		gzip -dc "$file" | sql
		return
	fi
	say "making the tables; that takes half a minute, and the next time they are there"
	tables_make
	(on_cloud ctl mariadb-dump --no-defaults --socket=/run/openstack/mariadb.sock --databases "${schemas[@]}") |
		gzip >"$file.new"
	mv "$file.new" "$file"
}

# sql [SCHEMA]: runs the statements of stdin.
sql() { (on_cloud ctl mariadb --no-defaults --socket=/run/openstack/mariadb.sock "$@"); }

# tables_make: in three chains, side by side.
tables_make() {
	local chain pids=()
	for chain in nova_tables neutron_tables other_tables; do
		$chain </dev/null >"$cloud/log/$chain.log" 2>&1 9>&- &
		pids+=($!)
	done
	for chain in "${pids[@]}"; do
		wait "$chain" || die "the tables cannot be made; see $cloud/log/*_tables.log"
	done
	catalogue_text | sql keystone
}

nova_tables() {
	nova_manage api_db sync
	nova_manage cell_v2 map_cell0 --database_connection "$(database_url nova_cell0)"
	nova_manage db sync
	nova_manage cell_v2 create_cell --name cell1
}

neutron_tables() { launch neutron.db.migration.cli:main --config-file "$cloud/etc/neutron.conf" upgrade heads; }

other_tables() {
	local url=http://$api:5000/v3 keystone=(keystone.cmd.manage:main --config-file "$cloud/etc/keystone/keystone.conf")
	launch "${keystone[@]}" db_sync
	launch "${keystone[@]}" bootstrap --bootstrap-password "$(password)" --bootstrap-region-id RegionOne \
		--bootstrap-admin-url "$url" --bootstrap-public-url "$url" --bootstrap-internal-url "$url"
	launch placement.cmd.manage:main --config-file "$cloud/etc/placement/placement.conf" db sync
	launch glance.cmd.manage:main --config-file "$cloud/etc/glance.conf" db_sync
}

launch() { (on_cloud ctl python3 "$cloud/python/launch.py" "$@"); }

nova_manage() { launch nova.cmd.manage:main --config-file "$cloud/etc/nova.conf" --config-file "$cloud/etc/nova-tables.conf" "$@"; }

# catalogue_text: where each service is. nova-scheduler and nova-compute end if placement is not in the catalogue when
# they start, so it is not left to keystone's API.
catalogue_text() {
	local type address interface
	while read -r type address; do
		echo "INSERT INTO service (id, type, enabled, extra) VALUES (MD5('$type'), '$type', 1, '{\"name\": \"$type\"}');"
		for interface in public internal admin; do
			echo "INSERT INTO endpoint (id, interface, service_id, url, extra, enabled, region_id) VALUES" \
				"(MD5('$type $interface'), '$interface', MD5('$type'), 'http://$api:$address', '{}', 1, 'RegionOne');"
		done
	done <<-'END'
		compute 8774/v2.1
		image 9292
		network 9696
		placement 8778
	END
}
