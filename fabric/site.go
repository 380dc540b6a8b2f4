package fabric

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// Pools returns the pools of a site: those of the three kinds, then the further ones by
// their names. A pool without tags is left out.
func Pools(site config.Fabric) (pools []Pool) {
	for _, p := range site.Pools() {
		pool := Pool{Name: p.Name, Kind: Kind(p.Kind), PerJob: p.PerJob, Partitions: p.Partitions}
		for _, r := range p.Pool {
			pool.Tags = append(pool.Tags, Range{Tag(r.First), Tag(r.Last)})
		}
		pools = append(pools, pool)
	}
	return pools
}

// PoolsOf returns the pools from which a job in a partition has its tags, at most one of
// each kind: the one that names the partition, or else the one for all partitions.
func PoolsOf(site config.Fabric, partition string) (pools []Pool) {
	all := Pools(site)
	for _, kind := range Kinds {
		if p, found := poolOf(all, kind, partition); found {
			pools = append(pools, p)
		}
	}
	return pools
}

func poolOf(pools []Pool, kind Kind, partition string) (general Pool, found bool) {
	for _, p := range pools {
		switch {
		case p.Kind != kind:
		case slices.Contains(p.Partitions, partition):
			return p, true
		case len(p.Partitions) == 0:
			general, found = p, true
		}
	}
	return general, found
}

// ClassesOf returns the traffic classes that jobs of a site may use, in the order of
// Classes.
func ClassesOf(site config.Fabric) []Class {
	var classes []Class
	for _, name := range site.VNI.Classes {
		classes = append(classes, Class(name))
	}
	return sortClasses(classes)
}

// WishOf returns the wish of a job whose user does not say: a tag of each kind for VMs with
// VFs, and else nothing. vms is the number of VMs on each node, vfs that of VFs of each VM.
func WishOf(site config.Fabric, vms, vfs int) Wish {
	var w Wish
	if vms == 0 || vfs == 0 {
		return w
	}
	for _, p := range Pools(site) {
		if p.PerJob > 0 {
			w.want(p.Kind, perJob(p.Kind))
		}
	}
	if !w.Empty() {
		w.VMs, w.VFs = vms, vfs
	}
	return w
}

// perJob is how many tags of a kind a job wants that does not say.
func perJob(kind Kind) int {
	if kind == VNI {
		return PerPool
	}
	return 1
}

func (w *Wish) want(kind Kind, n int) {
	if w.Tags == nil {
		w.Tags = map[Kind]int{}
	}
	w.Tags[kind] = n
}

// Check refuses what no job of the site can have. The error is a phrase that says what is
// allowed.
func (w Wish) Check(site config.Fabric) error {
	for _, kind := range w.Kinds() {
		if w.Tags[kind] != 0 && !site.HasPool(config.TagKind(kind)) {
			return fmt.Errorf("this site has no %s for jobs (the pool of [fabric.%s] is empty)", kind.Word(), kind)
		}
	}
	allowed := ClassesOf(site)
	for _, class := range w.Classes {
		if !slices.Contains(allowed, class) {
			return fmt.Errorf("jobs of this site may not use the traffic class %s; use %s",
				class, strings.ReplaceAll(joinClasses(allowed), "+", " or "))
		}
	}
	return nil
}

// Word returns the kind as sentences name it: VLAN, P_Key or VNI.
func (k Kind) Word() string { return config.TagKind(k).Word() }
