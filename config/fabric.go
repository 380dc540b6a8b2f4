package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Fabric says which tags jobs have on the fabric, and who must hear of them. Package fabric
// says what a tag is.
type Fabric struct {
	Key       string    `toml:"key"`       // absolute path of the file with the key that seals reservations
	State     string    `toml:"state"`     // directory of the ledger; "" for slurmctld's own
	Cooling   int       `toml:"cooling"`   // seconds between the release of a tag and its next use
	Exhausted Exhausted `toml:"exhausted"` // what happens to a job whose pool is empty
	Licenses  bool      `toml:"licenses"`  // Slurm counts tags as licences

	VLAN VLANPool           `toml:"vlan"`
	PKey PKeyPool           `toml:"pkey"`
	VNI  VNIPool            `toml:"vni"`
	Pool map[string]TagPool `toml:"pool"` // further pools, by name

	Collectives Collectives `toml:"collectives"`
}

// Exhausted is what happens to a job whose pool of tags is empty.
type Exhausted string

// The values of Exhausted.
const (
	ExhaustedFail  Exhausted = "fail"  // a batch job is requeued, another is refused
	ExhaustedEmpty Exhausted = "empty" // the job runs without VNI; without a VLAN or P_Key it fails all the same
)

// A VLANPool has the VLANs that jobs get for their VFs.
type VLANPool struct {
	Pool Tags `toml:"pool"`
}

// A PKeyPool has the InfiniBand partitions of jobs, and says how the subnet manager hears
// of their members.
type PKeyPool struct {
	Pool           Tags     `toml:"pool"`
	PartitionsFile string   `toml:"partitions_file"` // of OpenSM, on the host that runs it
	OpenSMPIDFile  string   `toml:"opensm_pid_file"`
	OpenSMCommand  []string `toml:"opensm_command"` // reads the members from its standard input
	UFM            string   `toml:"ufm"`            // https URL
	UFMTokenFile   string   `toml:"ufm_token_file"`
	UFMCAFile      string   `toml:"ufm_ca_file"` // "" for the system's authorities
}

// A VNIPool has the Slingshot VNIs of jobs.
type VNIPool struct {
	Pool    Tags     `toml:"pool"`
	PerJob  int      `toml:"per_job"` // of jobs that do not say; at most MaxVNIs
	Classes []string `toml:"classes"` // of TrafficClasses, those that jobs may use
	LibCXI  string   `toml:"libcxi"`  // name or absolute path of the library
}

// A TagPool is a further pool of tags.
type TagPool struct {
	Kind       TagKind  `toml:"kind"`
	Pool       Tags     `toml:"pool"`
	PerJob     int      `toml:"per_job"`
	Partitions []string `toml:"partitions"` // Slurm's partitions whose jobs use it; empty for all
}

// Collectives says where a Slingshot fabric manager reserves multicast addresses of jobs.
type Collectives struct {
	URL         string `toml:"url"` // https; "" for no hardware collectives
	TokenFile   string `toml:"token_file"`
	CAFile      string `toml:"ca_file"` // "" for the system's authorities
	AddrsPerJob int    `toml:"addrs_per_job"`
	MinNodes    int    `toml:"min_nodes"` // jobs with fewer nodes have none
	Timeout     int    `toml:"timeout"`   // of one request, in seconds
}

// TrafficClasses are the traffic classes of Slingshot.
var TrafficClasses = []string{"dedicated", "low-latency", "bulk", "best-effort"}

// MaxVNIs is how many VNIs a job can have: a CXI service takes so many
// (CXI_SVC_MAX_VNIS of libcxi.h). It has no more tags of another kind.
const MaxVNIs = 4

func defaultFabric() Fabric {
	return Fabric{
		Key: "/etc/slurm-v/fabric.key", Cooling: 30, Exhausted: ExhaustedFail,
		PKey:        PKeyPool{OpenSMCommand: []string{}},
		VNI:         VNIPool{PerJob: 1, Classes: []string{"best-effort", "low-latency"}, LibCXI: "libcxi.so.1"},
		Pool:        map[string]TagPool{},
		Collectives: Collectives{MinNodes: 2, Timeout: 5},
	}
}

func defaultTagPool() TagPool { return TagPool{PerJob: 1} }

// A NamedPool is a pool of tags and its name.
type NamedPool struct {
	Name string // "vlan", "pkey", "vni", or the name of a further pool
	TagPool
}

// Pools returns the pools that have tags: those of the three kinds, then the further ones
// by their names.
func (f Fabric) Pools() []NamedPool {
	pools := []NamedPool{
		{string(TagVLAN), TagPool{Kind: TagVLAN, Pool: f.VLAN.Pool, PerJob: 1}},
		{string(TagPKey), TagPool{Kind: TagPKey, Pool: f.PKey.Pool, PerJob: 1}},
		{string(TagVNI), TagPool{Kind: TagVNI, Pool: f.VNI.Pool, PerJob: f.VNI.PerJob}},
	}
	for _, name := range slices.Sorted(maps.Keys(f.Pool)) {
		pools = append(pools, NamedPool{name, f.Pool[name]})
	}
	return slices.DeleteFunc(pools, func(p NamedPool) bool { return len(p.Pool) == 0 })
}

// HasPool reports whether any job of the site can have a tag of a kind.
func (f Fabric) HasPool(kind TagKind) bool {
	return slices.ContainsFunc(f.Pools(), func(p NamedPool) bool { return p.Kind == kind })
}

// key returns the pool's section of the file.
func (p NamedPool) key() string {
	if p.Name == string(p.Kind) {
		return "fabric." + p.Name
	}
	return "fabric.pool." + Quote(p.Name)
}

func (f Fabric) validate() error {
	return firstOf(
		absolute("fabric.key", f.Key),
		absoluteOrNone("fabric.state", f.State),
		within("fabric.cooling", f.Cooling, 0, 86400),
		oneOf("fabric.exhausted", f.Exhausted, ExhaustedFail, ExhaustedEmpty),
		TagVLAN.check("fabric.vlan.pool", f.VLAN.Pool),
		f.PKey.validate(),
		f.VNI.validate(),
		f.validateFurtherPools(),
		f.validateApart(),
		f.validatePartitions(),
		f.Collectives.validate(),
	)
}

func (p PKeyPool) validate() error {
	return firstOf(
		TagPKey.check("fabric.pkey.pool", p.Pool),
		absoluteOrNone("fabric.pkey.partitions_file", p.PartitionsFile),
		absoluteOrNone("fabric.pkey.opensm_pid_file", p.OpenSMPIDFile),
		p.validateCommand(),
		secureURL("fabric.pkey.ufm", p.UFM, p.UFMTokenFile, p.UFMCAFile, "fabric.pkey.ufm_"),
		p.validateManager(),
	)
}

func (p PKeyPool) validateCommand() error {
	for _, word := range p.OpenSMCommand {
		if err := CheckText(word); err != nil {
			return fmt.Errorf("fabric.pkey.opensm_command: %w", err)
		}
	}
	if len(p.OpenSMCommand) > 0 && p.OpenSMCommand[0] == "" {
		return fmt.Errorf(`fabric.pkey.opensm_command: "" is no program; begin with its name or path, or write []`)
	}
	return nil
}

// validateManager wants one subnet manager. A file of OpenSM beside a command is none too
// many: the command may run where the file is, with the same configuration.
func (p PKeyPool) validateManager() error {
	switch {
	case p.UFM != "" && (p.PartitionsFile != "" || len(p.OpenSMCommand) > 0):
		return fmt.Errorf("fabric.pkey.ufm: OpenSM is named, too, and a fabric has one subnet manager; leave partitions_file and opensm_command out, or ufm")
	case p.OpenSMPIDFile != "" && p.PartitionsFile == "":
		return fmt.Errorf("fabric.pkey.opensm_pid_file: has no meaning without fabric.pkey.partitions_file; set that, too, or leave this out")
	}
	return nil
}

func (p VNIPool) validate() error {
	return firstOf(
		TagVNI.check("fabric.vni.pool", p.Pool),
		within("fabric.vni.per_job", p.PerJob, 0, MaxVNIs),
		p.validateClasses(),
		p.validateLibrary(),
	)
}

func (p VNIPool) validateClasses() error {
	const key = "fabric.vni.classes"
	if len(p.Classes) == 0 {
		return fmt.Errorf(`%s: the list is empty; name at least one, such as "best-effort"`, key)
	}
	for i, class := range p.Classes {
		if err := oneOf(key, class, TrafficClasses...); err != nil {
			return err
		}
		if slices.Contains(p.Classes[:i], class) {
			return fmt.Errorf("%s: %s is there twice", key, class)
		}
	}
	return nil
}

// validateLibrary refuses a relative path: root loads the library.
func (p VNIPool) validateLibrary() error {
	const key = "fabric.vni.libcxi"
	if strings.Contains(p.LibCXI, "/") {
		return absolute(key, p.LibCXI)
	}
	if !entryPattern().MatchString(p.LibCXI) {
		return fmt.Errorf("%s: %s is not a library; use a name such as libcxi.so.1, or an absolute path", key, Quote(p.LibCXI))
	}
	return nil
}

func (f Fabric) validateFurtherPools() error {
	for _, name := range slices.Sorted(maps.Keys(f.Pool)) {
		key := "fabric.pool." + Quote(name)
		if err := firstOf(entryName(key, name), f.Pool[name].validate(key)); err != nil {
			return err
		}
		if slices.Contains(TagKinds, TagKind(name)) {
			return fmt.Errorf("%s: the pool [fabric.%s] has this name; use another one", key, name)
		}
	}
	return nil
}

func (p TagPool) validate(key string) error {
	if err := firstOf(oneOf(key+".kind", p.Kind, TagKinds...), p.Kind.check(key+".pool", p.Pool)); err != nil {
		return err
	}
	if len(p.Pool) == 0 {
		return fmt.Errorf(`%s.pool: has no tags; write a range, such as "1024-2047", or leave the section out`, key)
	}
	if p.Kind != TagVNI && p.PerJob != 1 {
		return fmt.Errorf("%s.per_job: %d is not allowed; a job has one %s, so leave it out", key, p.PerJob, p.Kind.Word())
	}
	return firstOf(within(key+".per_job", p.PerJob, 0, MaxVNIs), partitions(key+".partitions", p.Partitions))
}

func partitions(key string, names []string) error {
	for _, name := range names {
		if !entryPattern().MatchString(name) {
			return fmt.Errorf("%s: %s is not the name of a partition; use names of slurm.conf", key, Quote(name))
		}
	}
	return nil
}

// validateApart refuses a tag that is in two pools: each pool gives it to a job.
func (f Fabric) validateApart() error {
	return f.eachPair(func(a, b NamedPool) error {
		if shared, found := a.Pool.overlap(b.Pool); found {
			return fmt.Errorf("%s.pool: %s is in %s.pool, too; keep the pools of one kind apart",
				b.key(), a.Kind.text(shared), a.key())
		}
		return nil
	})
}

// validatePartitions refuses two pools of one kind for the same jobs.
func (f Fabric) validatePartitions() error {
	return f.eachPair(func(a, b NamedPool) error {
		if len(a.Partitions) == 0 && len(b.Partitions) == 0 {
			return fmt.Errorf("%s.partitions: is empty, and %s has the %ss of all partitions; name the partitions whose jobs use this pool",
				b.key(), a.key(), a.Kind.Word())
		}
		for _, name := range b.Partitions {
			if slices.Contains(a.Partitions, name) {
				return fmt.Errorf("%s.partitions: the jobs of %s have their %ss from %s; name a partition in one pool of a kind",
					b.key(), name, a.Kind.Word(), a.key())
			}
		}
		return nil
	})
}

// eachPair calls check for every two pools of one kind, until it returns an error.
func (f Fabric) eachPair(check func(a, b NamedPool) error) error {
	pools := f.Pools()
	for i, b := range pools {
		for _, a := range pools[:i] {
			if a.Kind != b.Kind {
				continue
			}
			if err := check(a, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// validateLicenses refuses licences that Slurm could not count right: whether a job uses a
// further pool depends on the partition in which it starts, and it asks before.
func (c Config) validateLicenses() error {
	switch f := c.Fabric; {
	case !f.Licenses:
		return nil
	case len(f.Pools()) == 0:
		return fmt.Errorf("fabric.licenses: there is no pool to count; set the pool of fabric.vlan, fabric.pkey or fabric.vni, or write false")
	case len(f.Pool) > 0:
		return fmt.Errorf("fabric.licenses: Slurm cannot count the pools of [fabric.pool] (%s), because a job asks before its partition is known; write false", Names(f.Pool))
	case c.Slurm.Resources == ResourcesUser:
		return fmt.Errorf(`fabric.licenses: the shipped Lua scripts add licences to jobs, and slurm.resources = "user" says that none is loaded; write "job_submit" or "cli_filter" there, or false here`)
	}
	return nil
}

func (c Collectives) validate() error {
	const key = "fabric.collectives."
	if err := firstOf(
		secureURL(key+"url", c.URL, c.TokenFile, c.CAFile, key),
		within(key+"addrs_per_job", c.AddrsPerJob, 0, 65535),
		within(key+"min_nodes", c.MinNodes, 1, 65535),
		within(key+"timeout", c.Timeout, 1, 60),
	); err != nil {
		return err
	}
	if c.URL != "" && c.AddrsPerJob == 0 {
		return fmt.Errorf("%saddrs_per_job: 0 gives jobs no multicast address; use 1 or more, or leave %surl out", key, key)
	}
	return nil
}

// secureURL checks the address of a service and the files with its token and its
// certificate authorities. prefix is that of the files' keys.
func secureURL(key, text, token, authorities, prefix string) error {
	if err := firstOf(
		absoluteOrNone(prefix+"token_file", token),
		absoluteOrNone(prefix+"ca_file", authorities),
		httpsOrNone(key, text),
	); err != nil {
		return err
	}
	switch {
	case text != "" && token == "":
		return fmt.Errorf(`%stoken_file: "" names no file; name the file with the token for %s`, prefix, Quote(text))
	case text == "" && cmp.Or(token, authorities) != "":
		return fmt.Errorf("%s: is empty, and its token or certificate file is set; set it, too, or leave them out", key)
	}
	return nil
}

func httpsOrNone(key, text string) error {
	if text == "" {
		return nil
	}
	if err := CheckText(text); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	at, err := url.Parse(text)
	plain := err == nil && at.Scheme == "https" && at.Hostname() != "" && at.User == nil && at.RawQuery == "" && at.Fragment == ""
	if !plain || at.Path != "" && filepath.Clean(at.Path) != at.Path {
		return fmt.Errorf("%s: %s is not a plain https address; write it such as https://fabric.site:8443", key, Quote(text))
	}
	return nil
}
