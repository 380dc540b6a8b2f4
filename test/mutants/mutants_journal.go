package main

// What a crash must not lose.
var journalMutants = []Mutant{
	{
		Name:    "records-are-on-disk",
		Defence: "What a job is about to take is on disk before it takes it.",
		File:    "journal/journal.go",
		Old:     "\treturn j.sync(end)\n",
		New:     "\t_ = end\n\treturn nil\n",
		Package: "journal",
		Test:    "TestRecordsAreOnDisk",
	},
	{
		Name:    "one-holder-of-a-journal",
		Defence: "A job has one agent, or one that reclaims.",
		File:    "internal/durable/lock.go",
		Old:     "if err == nil && !ours {",
		New:     "if _ = ours; false {",
		Package: "journal",
		Test:    "TestTheLockNamesItsHolder",
	},
	{
		Name:    "journal-of-another-job",
		Defence: "A journal that was moved is not another job's.",
		File:    "journal/journal.go",
		Old:     "if h := j.c.header; h.Version != 0 && h.ID() != j.id {",
		New:     "if h := j.c.header; false {",
		Package: "journal",
		Test:    "TestAJournalOfAnotherJobIsRefused",
	},
	{
		Name:    "journal-goes-last",
		Defence: "A journal stays while anything of its job is held.",
		File:    "journal/journal.go",
		Old:     "if n := len(j.c.held); n > 0 {",
		New:     "if n := len(j.c.held); n < 0 {",
		Package: "journal",
		Test:    "TestRemoveIsLast",
	},
	{
		Name:    "journal-that-was-spoilt",
		Defence: "A record that the disk has spoilt is noticed.",
		File:    "internal/durable/line.go",
		Old:     "case string(body[:sumSize]) != sum(body[sumSize:]):",
		New:     "case false:",
		Package: "journal",
		Test:    "TestEverySpoiltByteBeforeTheLastLineIsNoticed",
	},
}
