package main

// Virtual functions and their leases.
var vfMutants = []Mutant{
	{
		Name:    "quarantine",
		Defence: "A VF that could not be restored is given to nobody.",
		File:    "vfpool/vfpool.go",
		Old:     "r.Quarantine = err.Error()\n\t\treturn errors.Join(err, p.leases.Update(r))",
		New:     "_ = err",
		Package: "vfpool",
		Test:    "TestAVFThatCannotBeRestoredIsInQuarantine",
	},
	{
		Name:    "quarantine-of-a-damaged-record",
		Defence: "A VF whose record cannot be read is given to nobody.",
		File:    "vfpool/lease/store.go",
		Old:     "r = Record{VF: vf, BootID: s.boot}",
		New:     "return Record{VF: vf, BootID: s.boot}, false",
		Package: "vfpool/lease",
		Test:    "TestDamage",
	},
	{
		Name:    "original-is-written-once",
		Defence: "What a VF was before is not read off a VF that was changed.",
		File:    "vfpool/lease/lease.go",
		Old:     "case old.Original != nil && !reflect.DeepEqual(r.Original, old.Original):",
		New:     "case false && reflect.DeepEqual(r, old):",
		Package: "vfpool/lease",
		Test:    "TestWhatALeaseDoesNotBecome",
	},
	{
		Name:    "lease-is-on-disk",
		Defence: "A lease is on disk before anything is done to its VF.",
		File:    "vfpool/lease/store.go",
		Old:     "return errors.Join(f.write(&r), s.sync(f.File))",
		New:     "return f.write(&r)",
		Package: "vfpool/lease",
		Test:    "TestPowerCuts",
	},
	{
		Name:    "orphans-of-jobs-that-live",
		Defence: "The VFs of a job that runs are not taken from it.",
		File:    "vfpool/vfpool.go",
		Old:     "if seen[r.Job] || r.Job.Job == 0 || live(r.Job) {",
		New:     "if seen[r.Job] || r.Job.Job == 0 {",
		Package: "vfpool",
		Test:    "TestOrphansAreReleasedAndOthersAreNot",
	},
}
