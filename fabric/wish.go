package fabric

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

// WishVariable has a job's wish in PrologSlurmctld and EpilogSlurmctld. Without it they have
// nothing to do.
const WishVariable = slurm.HookPrefix + "SLURMV_FABRIC"

// A Wish is what a job wants of the fabric. The plugin writes it into the job's control
// environment when the job is submitted, as the variable SLURMV_FABRIC; the controller reads
// it there. Users can change it, and only ever change their own job's tags with it.
//
// The zero Wish is that of a job which wants nothing, and is not written.
type Wish struct {
	Off     bool         // the user has said that the job is to have no tags
	Tags    map[Kind]int // how many; PerPool for as many as the pool gives a job that does not say
	Classes []Class      // in the order of Classes; empty for the site's
	VMs     int          // on each node, if they have VFs; else 0
	VFs     int          // of each VM
}

// PerPool stands for the number that the job's pool has for jobs that do not say. It is
// not known when the job is submitted: the pool depends on the partition.
const PerPool = -1

// Why a job has no tags of a pool.
const (
	WhyOff  = "disabled by user request"
	WhyNone = "none requested"
)

// The largest numbers that ParseWish takes; they leave room for every VM and VF that a
// configuration allows.
const (
	maxWish = 128 // bytes
	maxVMs  = 1024
	maxVFs  = 63
)

// Empty reports whether the job wants nothing, so that nobody needs to hear of it.
func (w Wish) Empty() bool { return !w.Off && len(w.Tags) == 0 }

// Count returns how many tags of a pool the job wants. If it is 0, why says the reason.
func (w Wish) Count(p Pool) (n int, why string) {
	n = w.Tags[p.Kind]
	if n == PerPool {
		n = p.PerJob
	}
	switch {
	case w.Off:
		return 0, WhyOff
	case n == 0:
		return 0, WhyNone
	}
	return n, ""
}

// String returns the wish as one line of at most 128 bytes, such as
//
//	vlan:1,pkey:1,vni:2,tc:low-latency+bulk,vms:2,vfs:1
//
// or "off". A vni without number is as many as the job's pool says; tc has the traffic
// classes, vms and vfs the VMs of each node and the VFs of each VM. The text of the zero
// Wish is empty.
func (w Wish) String() string {
	if w.Off {
		return "off"
	}
	var items []string
	for _, kind := range Kinds {
		switch n, wanted := w.Tags[kind]; {
		case wanted && n == PerPool:
			items = append(items, string(kind))
		case wanted:
			items = append(items, fmt.Sprintf("%s:%d", kind, n))
		}
	}
	if len(w.Classes) > 0 {
		items = append(items, "tc:"+joinClasses(w.Classes))
	}
	if w.VFs > 0 {
		items = append(items, fmt.Sprintf("vms:%d,vfs:%d", w.VMs, w.VFs))
	}
	return strings.Join(items, ",")
}

func joinClasses(classes []Class) string {
	texts := make([]string, len(classes))
	for i, class := range classes {
		texts[i] = string(class)
	}
	return strings.Join(texts, "+")
}

// ParseWish reads the text of [Wish.String], and no other form of it.
func ParseWish(text string) (Wish, error) {
	if len(text) > maxWish {
		return Wish{}, fmt.Errorf("read the job's wish for tags: %d bytes long; at most %d are allowed", len(text), maxWish)
	}
	var w Wish
	for item := range strings.SplitSeq(text, ",") {
		if err := w.read(item); err != nil {
			return Wish{}, fmt.Errorf("read the job's wish for tags: %s: %w", config.Quote(item), err)
		}
	}
	if w.Empty() || w.String() != text {
		return Wish{}, fmt.Errorf("read the job's wish for tags: %s is not as Slurm-V writes it; was the job submitted with another version?", config.Quote(text))
	}
	return w, nil
}

// read adds one item. ParseWish finds out whether it is in its place and there once.
func (w *Wish) read(item string) (err error) {
	name, value, valued := strings.Cut(item, ":")
	switch {
	case item == "off":
		w.Off = true
	case slices.Contains(Kinds, Kind(name)):
		return w.readTags(Kind(name), value, valued)
	case name == "tc":
		w.Classes, err = parseClasses(value)
	case name == "vms":
		w.VMs, err = number(value, 1, maxVMs)
	case name == "vfs":
		w.VFs, err = number(value, 1, maxVFs)
	default:
		err = fmt.Errorf("not an item of a wish")
	}
	return err
}

func (w *Wish) readTags(kind Kind, value string, valued bool) (err error) {
	n := PerPool
	if valued || kind != VNI {
		least, most := bounds(kind)
		n, err = number(value, least, most)
	}
	w.want(kind, n)
	return err
}

// bounds returns how few and how many tags of a kind a job can ask for.
func bounds(kind Kind) (least, most int) {
	if kind == VNI {
		return 0, config.MaxVNIs
	}
	return 1, 1
}

func number(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("not a number from %d to %d", least, most)
	}
	return n, nil
}

func parseClasses(text string) (classes []Class, err error) {
	for name := range strings.SplitSeq(text, "+") {
		if !slices.Contains(Classes, Class(name)) {
			return nil, fmt.Errorf("%s is not a traffic class", config.Quote(name))
		}
		classes = append(classes, Class(name))
	}
	if !slices.Equal(classes, sortClasses(classes)) {
		return nil, fmt.Errorf("the traffic classes are not in their order, or there twice")
	}
	return classes, nil
}

// sortClasses returns the classes in the order of Classes, each once.
func sortClasses(classes []Class) (sorted []Class) {
	for _, class := range Classes {
		if slices.Contains(classes, class) {
			sorted = append(sorted, class)
		}
	}
	return sorted
}

// Kinds returns the kinds of which the job wants tags, or has said that it wants none.
func (w Wish) Kinds() (kinds []Kind) {
	for _, kind := range Kinds {
		if _, wanted := w.Tags[kind]; wanted {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
