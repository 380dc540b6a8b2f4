"""Puts into a new cloud what its users need. Every command can run again.

seed.py network LAN             the guests' network; LAN is the first half of its addresses
seed.py image NAME FILE [K=V]   a disk image
seed.py clouds FILE             a clouds.yaml with credentials of its own
seed.py hosts HOW NAME...       waits until these compute hosts take VMs; HOW is agents or static
seed.py leaks                   shows what is there beside that
"""
import os
import sys
import time

import requests
import requests.adapters
import urllib3

AUTH = os.environ['SLURMV_AUTH']
PATIENCE = 120  # seconds

# libvirt plugs memory that VMs share into a slot of the old kind, which `q35` does not have, and the guest agent's
# port into the controller that `hw_qemu_guest_agent` brings.
IMAGE = {'hw_machine_type': 'pc', 'hw_qemu_guest_agent': 'yes', 'hw_rng_model': 'virtio', 'hw_video_model': 'none'}


class Cloud:
    def __init__(self):
        self.http = requests.Session()
        self.http.trust_env = False
        # neutron accepts connections before it serves, and resets them
        patient = urllib3.Retry(total=8, backoff_factor=0.2, allowed_methods=['GET'], raise_on_status=False)
        self.http.mount('http://', requests.adapters.HTTPAdapter(max_retries=patient))
        admin = {'name': 'admin', 'domain': {'name': 'Default'}}
        answer = self.call('POST', AUTH + '/auth/tokens', json={'auth': {
            'identity': {'methods': ['password'],
                         'password': {'user': dict(admin, password=os.environ['SLURMV_PASSWORD'])}},
            'scope': {'project': admin}}})
        self.http.headers['X-Auth-Token'] = answer.headers['X-Subject-Token']
        token = answer.json()['token']
        self.user = token['user']['id']
        self.at = {s['type']: s['endpoints'][0]['url'] for s in token['catalog'] if s['endpoints']}

    def call(self, method, url, **options):
        answer = self.http.request(method, url, timeout=120, **options)
        if not answer.ok:
            sys.exit(f'{method} {url}: {answer.status_code} {answer.text[:400]}')
        return answer

    def get(self, service, path):
        return self.call('GET', self.at[service] + path).json()


def network(cloud, lan):
    url = cloud.at['network'] + '/v2.0/'
    networks = cloud.get('network', '/v2.0/networks?name=guests')['networks']
    if not networks:
        networks = [cloud.call('POST', url + 'networks', json={'network': {
            'name': 'guests', 'shared': True, 'port_security_enabled': False,
            'provider:network_type': 'flat', 'provider:physical_network': 'guests'}}).json()['network']]
    if not networks[0]['subnets']:
        cloud.call('POST', url + 'subnets', json={'subnet': {
            'name': 'guests', 'network_id': networks[0]['id'], 'ip_version': 4, 'cidr': lan + '.0.0/16',
            'gateway_ip': None, 'enable_dhcp': False,
            'allocation_pools': [{'start': lan + '.1.1', 'end': lan + '.9.254'}]}})


def image(cloud, name, file, *properties):
    url = cloud.at['image'] + '/v2/images'
    wanted = dict(IMAGE, slurmv_file=f'{file} {os.stat(file).st_mtime_ns}', **dict(p.split('=', 1) for p in properties))
    for old in cloud.get('image', f'/v2/images?name={name}')['images']:
        if old['status'] == 'active' and wanted.items() <= old.items():
            return
        cloud.call('DELETE', url + '/' + old['id'])
    new = cloud.call('POST', url, json=dict(wanted, name=name, visibility='public', disk_format=disk_format(file),
                                            container_format='bare')).json()['id']
    with open(file, 'rb') as data:
        cloud.call('PUT', f'{url}/{new}/file', data=data, headers={'Content-Type': 'application/octet-stream'})


def disk_format(file):
    with open(file, 'rb') as data:
        return 'qcow2' if data.read(4) == b'QFI\xfb' else 'raw'


def clouds(cloud, file):
    url = f'{AUTH}/users/{cloud.user}/application_credentials'
    for old in cloud.call('GET', url + '?name=slurmv').json()['application_credentials']:
        cloud.call('DELETE', url + '/' + old['id'])
    new = cloud.call('POST', url, json={'application_credential': {'name': 'slurmv'}}).json()['application_credential']
    with open(os.open(file + '.new', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'w') as out:
        out.write(f'''clouds:
  slurmv:
    auth_type: v3applicationcredential
    auth:
      auth_url: {AUTH}
      application_credential_id: {new['id']}
      application_credential_secret: {new['secret']}
    region_name: RegionOne
    identity_api_version: 3
''')
    os.rename(file + '.new', file)


def hosts(cloud, how, *names):
    end = time.time() + PATIENCE
    while missing := set(names) - ready(cloud, how):
        if time.time() > end:
            sys.exit('these compute hosts take no VMs: ' + ' '.join(sorted(missing)))
        time.sleep(0.5)


def ready(cloud, how):
    """The hosts that nova's API, placement and neutron know."""
    up = {s['host'] for s in cloud.get('compute', '/os-services?binary=nova-compute')['services'] if s['state'] == 'up'}
    up &= {h['hypervisor_hostname'] for h in cloud.get('compute', '/os-hypervisors')['hypervisors']}
    up &= {p['name'] for p in cloud.get('placement', '/resource_providers')['resource_providers']}
    if how == 'agents':
        up &= {a['host'] for a in cloud.get('network', '/v2.0/agents')['agents'] if a['alive']}
    return up


def leaks(cloud):
    """What there is beside the cloud's own network and images, with an administrator's eyes."""
    found = [f"server {s['name']} ({s['status']})"
             for s in cloud.get('compute', '/servers/detail?all_tenants=1')['servers']]
    found += [f"port {p['id']} ({p['description']}, {p['binding:vnic_type']}, "
              f"{p['binding:vif_type']} on {p['binding:host_id']}, {p['status']})"
              for p in cloud.get('network', '/v2.0/ports')['ports']]
    found += [f"QoS policy {p['name']}" for p in cloud.get('network', '/v2.0/qos/policies')['policies']]
    found += [f"flavor {f['name']}" for f in cloud.get('compute', '/flavors/detail?is_public=None')['flavors']]
    found += [f"image {i['name']}" for i in cloud.get('image', '/v2/images')['images'] if 'slurmv_file' not in i]
    for p in cloud.get('placement', '/resource_providers')['resource_providers']:
        held = cloud.get('placement', f"/resource_providers/{p['uuid']}/allocations")['allocations']
        found += [f"allocation {id} on {p['name']}" for id in held]
    print('\n'.join(found), end='\n' if found else '')
    sys.exit(1 if found else 0)


commands = {'network': network, 'image': image, 'clouds': clouds, 'hosts': hosts, 'leaks': leaks}
commands[sys.argv[1]](Cloud(), *sys.argv[2:])
