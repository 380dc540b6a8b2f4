package slurm

import (
	"cmp"
	"context"
	"regexp"
	"strings"
)

// SiteNames returns the names and addresses by which slurmctld knows the cluster, its controllers, the hosts of its
// databases and its nodes, in no order. If slurmctld leaves an answer out, the error says so, and the names of the other
// answer are returned.
func SiteNames(ctx context.Context, c Client) ([]string, error) {
	conf, confErr := c.Conf(ctx)
	nodes, nodesErr := c.Run(ctx, "scontrol", "--all", "--oneliner", "show", "node")
	return append(siteNames(conf), nodeNames(nodes)...), cmp.Or(confErr, nodesErr)
}

// siteSetting matches the settings that name the cluster or hosts, as scontrol shows them.
var siteSetting = regexp.MustCompile(`^(ClusterName|SlurmctldHost\[[0-9]+\]|SlurmctldAddr|AccountingStorage(Backup|External)?Host|JobCompHost)$`)

func siteNames(conf Conf) (names []string) {
	for setting, value := range conf {
		if siteSetting.MatchString(setting) {
			names = append(names, hostsIn(value)...)
		}
	}
	return names
}

var port = regexp.MustCompile(`^([^:]+):[0-9]+$`)

// hostsIn returns the names in a value such as ctl1(10.0.0.1) or db1:6819,db2.
func hostsIn(value string) (hosts []string) {
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune("(), \t", r) }) {
		hosts = append(hosts, port.ReplaceAllString(word, "$1"))
	}
	return hosts
}

var nodeName = regexp.MustCompile(`\bNode(?:Name|Addr|HostName)=(\S+)`)

// nodeNames reads the lines of scontrol show node.
func nodeNames(text string) (names []string) {
	for _, found := range nodeName.FindAllStringSubmatch(text, -1) {
		names = append(names, found[1])
	}
	return names
}
