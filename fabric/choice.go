package fabric

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// A Choice is what a user says about the tags of a job: the value of --vm-fabric.
type Choice struct {
	Off     bool
	VNIs    int     // PerPool if the user does not say
	Classes []Class // in the order of Classes
}

const choiceForm = "use off, vni:N with a number of VNIs, or traffic classes (dedicated, low-latency, bulk, best-effort), joined with commas"

// ParseChoice reads a value such as "off" or "vni:2,low-latency", in any order. The error is
// a phrase that begins with the wrong part.
func ParseChoice(text string) (Choice, error) {
	c := Choice{VNIs: PerPool}
	for item := range strings.SplitSeq(text, ",") {
		if err := c.read(item); err != nil {
			return Choice{}, fmt.Errorf("%s %w", config.Quote(item), err)
		}
	}
	c.Classes = sortClasses(c.Classes)
	return c, c.check()
}

var errTwice = errors.New("is there twice; write it once")

func (c *Choice) read(item string) error {
	number, vnis := strings.CutPrefix(item, string(VNI)+":")
	class := Class(item)
	switch {
	case item == "off" && c.Off, vnis && c.VNIs != PerPool, slices.Contains(c.Classes, class):
		return errTwice
	case item == "off":
		c.Off = true
	case vnis:
		return c.readVNIs(number)
	case slices.Contains(Classes, class):
		c.Classes = append(c.Classes, class)
	default:
		return fmt.Errorf("is not allowed; %s", choiceForm)
	}
	return nil
}

func (c *Choice) readVNIs(text string) error {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return fmt.Errorf("is not allowed; write vni:N with a number, 0 to %d", config.MaxVNIs)
	}
	n, err := number(text, 0, config.MaxVNIs)
	if err != nil {
		return fmt.Errorf("is too many; a job has at most %d VNIs", config.MaxVNIs)
	}
	c.VNIs = n
	return nil
}

func (c *Choice) check() error {
	switch {
	case c.Off && (c.VNIs != PerPool || len(c.Classes) > 0):
		return errors.New("off means no tags at all; leave it out, or the rest")
	case c.VNIs == 0 && len(c.Classes) > 0:
		return fmt.Errorf("vni:0 leaves no VNI whose traffic could have the class %s; leave one of them out", c.Classes[0])
	}
	return nil
}

// String returns the shortest text that ParseChoice reads back.
func (c Choice) String() string {
	var items []string
	if c.Off {
		items = append(items, "off")
	}
	if c.VNIs != PerPool {
		items = append(items, fmt.Sprintf("%s:%d", VNI, c.VNIs))
	}
	for _, class := range c.Classes {
		items = append(items, string(class))
	}
	return strings.Join(items, ",")
}

// Wish returns the wish of a job whose user has made the choice: that of [WishOf], with the
// number of VNIs and the traffic classes that the user wants. A job without VFs then has
// VNIs only, because VLANs and P_Keys are set on VFs. The error is a phrase that says what
// the site does not have.
func (c Choice) Wish(site config.Fabric, vms, vfs int) (Wish, error) {
	w := WishOf(site, vms, vfs)
	if len(site.Pools()) == 0 && (c.Off || c.VNIs == 0) {
		return Wish{}, nil
	}
	if c.Off {
		return Wish{Off: true}, w.checkOff()
	}
	if _, wanted := w.Tags[VNI]; c.VNIs != PerPool || !wanted {
		w.want(VNI, c.VNIs)
	}
	w.Classes = c.Classes
	if err := w.Check(site); err != nil {
		return Wish{}, err
	}
	if w.Tags[VNI] == PerPool && !slices.ContainsFunc(Pools(site), func(p Pool) bool { return p.Kind == VNI && p.PerJob > 0 }) {
		return Wish{}, fmt.Errorf("jobs of this site have VNIs only if they say how many; add vni:1")
	}
	return w, nil
}

// checkOff refuses VFs that lose their VLAN or P_Key. Some cards send what a VF has tagged itself
// into any VLAN if the VF has none (seen on an emulated igb).
func (w Wish) checkOff() error {
	for _, kind := range []Kind{VLAN, PKey} {
		if w.Tags[kind] > 0 {
			return fmt.Errorf("off would leave the VFs without %s, and they could then reach other jobs; leave it out, or write vni:0 for no VNI", kind.Word())
		}
	}
	return nil
}
