package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	fabriccommands "github.com/slurm-v/slurm-v/fabric/commands"
	"github.com/slurm-v/slurm-v/slurm"
)

// documents returns the texts of README.md and of all below docs, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	return texts
}

var (
	inLine = regexp.MustCompile("`slurmv ([a-z-][^`]*)`")
	// A command in a block of its own, perhaps on another host or in a job.
	inBlock = regexp.MustCompile(`(?m)^ {4,}(?:[$#] )?(?:(?:ssh|srun|salloc)\b[^|]* )?slurmv ([a-z-].*)$`)
	// What ends a command in a shell, or begins a comment.
	shellEnd = regexp.MustCompile(`\s[|>#;&].*$|…`)
)

// Whoever types what a document shows uses commands and flags that exist.
func TestCommandsOfTheDocuments(t *testing.T) {
	seen := 0
	for file, text := range documents(t) {
		for _, found := range append(inLine.FindAllStringSubmatch(text, -1), inBlock.FindAllStringSubmatch(text, -1)...) {
			seen++
			if err := typed(newRoot(fabriccommands.Ledger{}), strings.Fields(shellEnd.ReplaceAllString(found[1], ""))); err != "" {
				t.Errorf("%s: slurmv %s: %s", file, found[1], err)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d commands were found", seen)
	}
}

// typed says what is wrong with a command line; "" if nothing is.
func typed(root *cobra.Command, words []string) string {
	c, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		switch {
		case word == "--":
			return ""
		case name == "--help" || name == "--version":
		case strings.HasPrefix(name, "--") && c.Flags().Lookup(name[2:]) == nil:
			return "there is no flag " + name
		case len(name) == 2 && name[0] == '-' && c.Flags().ShorthandLookup(name[1:]) == nil:
			return "there is no flag " + name
		}
	}
	return ""
}

// Slurm takes Epilog= and its like for the path of a program, without arguments.
var hookWithArguments = regexp.MustCompile(`(Epilog|Prolog|Slurmctld)=\S+ \S`)

func TestHelpHasHooksThatSlurmReads(t *testing.T) {
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if found := hookWithArguments.FindString(c.Long + c.Example); found != "" {
			t.Errorf("%s --help: %s", c.CommandPath(), found)
		}
		for _, child := range c.Commands() {
			look(child)
		}
	}
	look(newRoot(fabriccommands.Ledger{}))
	if hookWithArguments.MatchString(config.Commented) {
		t.Errorf("slurmv.toml: %s", hookWithArguments.FindString(config.Commented))
	}
}

// The man pages are the same whoever builds them, and wherever.
func TestHelpDoesNotKnowWhoReadsIt(t *testing.T) {
	t.Setenv(slurm.EnvJobID, "")
	if os.Geteuid() != 0 {
		t.Skip("not root: run this as root, for whom some commands do other things")
	}
	jobinfo, _, err := newRoot(fabriccommands.Ledger{}).Find([]string{"fabric", "jobinfo"})
	if err != nil || jobinfo.Flags().Lookup("ledger").DefValue != "false" {
		t.Errorf("slurmv fabric jobinfo --help has another default for root, %v", err)
	}
}

func TestWrongCommandsAreSeen(t *testing.T) {
	for _, words := range []string{"pss", "ps --longer", "vf list -x"} {
		if typed(newRoot(fabriccommands.Ledger{}), strings.Fields(words)) == "" {
			t.Errorf("slurmv %s is not seen to be wrong", words)
		}
	}
}

var (
	tomlBlock = regexp.MustCompile(`(?m)^ {4,}\[[a-z].*\n(?: {4,}.*\n|\n {4,}\[.*\n)*`)
	indent    = regexp.MustCompile(`(?m)^ {4,6}`)
)

// A site that copies what a document shows has a configuration that is valid.
func TestConfigurationOfTheDocuments(t *testing.T) {
	seen := 0
	for file, text := range documents(t) {
		for _, block := range tomlBlock.FindAllString(text, -1) {
			seen++
			if _, err := config.Parse(file, []byte(indent.ReplaceAllString(block, ""))); err != nil {
				t.Errorf("%v\n%s", err, block)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d pieces of configuration were found", seen)
	}
}
