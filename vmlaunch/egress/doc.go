// Package egress gives VMs a way out of their job's network, to what the site allows.
//
// The guest has a TUN interface. Its packets go through the channel of the guest agent (see
// [guest.Session.Egress]) to a process of the job's owner on the node, which ends the
// guest's connections and makes its own:
//
//	programs - guest's kernel - TUN - slurmv-guest - channel - slurmv-agent - server - site
//
// So there is no NAT and no route on the node, QEMU needs no device for it, and a VM that was
// restored has it too. To the site's network, and to its firewalls that go by users, a VM's
// connection is one of the job's owner from the node. The list of destinations keeps VMs from
// what the site does not mean them to use. It gives the owner no right and takes none: the
// owner's programs on the node can connect as before.
//
// The server carries TCP and UDP by IPv4. It also answers questions for names, with what the
// node itself finds, /etc/hosts included.
package egress
