// Command mutants shows that each defence of Slurm-V has a test that dies with it.
//
// A [Mutant] takes one defence out of the source. The program does so in a worktree of
// its own, and runs the one test that must fail then. That test has to pass as long as
// the source is whole. A mutant which no test notices has survived: either the defence
// does nothing, or its test proves nothing.
//
//	make mutants             all of them
//	make mutants SAMPLE=6    a sample of the quick ones, another with each commit
//	make mutants RUN=regexp  those with such names
//	make mutants KIND=unit   those that need no cluster
//
// What is tried is the checkout as it is, with what is not committed yet.
//
// To add one: write an entry in the file of its area. Old is a text that the file has once,
// as short as makes it so; New takes its place, and still compiles (to leave a
// variable unused, write `_ = x`): a unit test checks that for all of the list. Name the test that stands for the defence, not one
// that happens to fail, too. Then run it: make mutants RUN=its-name.
//
// What does not build, a test that is skipped, missing or takes too long, is an error
// in the list, and never counts as killed.
package main

import "slices"

// A Kind is what a test needs.
type Kind string

// The kinds. The test of a Slow one is left out of samples; that of a Cluster one is a
// scenario, on a cluster that is brought up from the worktree.
const (
	Unit    Kind = "unit"
	Slow    Kind = "slow"
	Cluster Kind = "cluster"
)

// A Mutant is one defence that is missing.
type Mutant struct {
	Name     string // words and dashes
	Defence  string // what is missing, in a sentence that says what it is good for
	File     string // of the repository
	Old, New string
	Package  string // the directory of the test that must fail
	Test     string // its name, or that of a subtest: TestX/with_spaces
	Kind     Kind   // Unit if empty
}

// all is the whole list.
var all = slices.Concat(
	imageMutants,
	memoryMutants,
	networkMutants,
	vfMutants,
	fabricNodeMutants,
	fabricIBMutants,
	launchMutants,
	guestMutants,
	journalMutants,
	rightsMutants,
	submitMutants,
	fabricOptionMutants,
	agentMutants,
	portMutants,
	reclaimMutants,
	directoryMutants,
	egressMutants,
	fabricCXIMutants,
	mpiMutants,
	fabricSiteMutants,
	fabricControllerMutants,
	openstackMutants,
	clusterMutants,
)

// kind is what the mutant's test needs.
func (m Mutant) kind() Kind {
	if m.Kind == "" {
		return Unit
	}
	return m.Kind
}
