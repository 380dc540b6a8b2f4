package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/slurm/slurmtest"
)

const pluginHelp = `
      --launch-in=place       another plugin's option
      --polish[=how]          polish
      --loud                  be loud
`

// said writes options as name=value, or as name without a value. "?" marks an unknown
// option, "!" one that lacks its value.
func said(options []Option) string {
	var texts []string
	for _, o := range options {
		text := o.Name
		switch {
		case !o.Known && o.Letter != 0:
			text = fmt.Sprintf("?%c", o.Letter)
		case !o.Known:
			text = "?" + o.Name
		case o.Missing():
			text = "!" + o.Name
		case o.Given:
			text += "=" + o.Value
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		words string
		want  string // options | rest
		srun  string // if srun differs from sbatch
	}{
		"nothing":                      {"", " | ", ""},
		"a program":                    {"./app -n 3", " | ./app -n 3", ""},
		"a letter and a value":         {"-n 4 x", "ntasks=4 | x", ""},
		"a letter with its value":      {"-n4 x", "ntasks=4 | x", ""},
		"letters together":             {"-vHN 2 x", "verbose hold nodes=2 | x", ""},
		"a name and a value":           {"--ntasks 4 x", "ntasks=4 | x", ""},
		"a name with its value":        {"--ntasks=4 x", "ntasks=4 | x", ""},
		"an empty value":               {"--comment= x", "comment= | x", ""},
		"a name that is cut":           {"--ntasks-per-n 2 x", "ntasks-per-node=2 | x", ""},
		"a second name":                {"--tasks-per-node 8 --cluster=c x", "ntasks-per-node=8 clusters=c | x", ""},
		"options of Slurm 26.05":       {"--container-type a --mem-update b --resources c x", "container-type=a mem-update=b resources=c | x", ""},
		"a name that is ambiguous":     {"--nt=2 x", "?nt | x", ""},
		"an optional value":            {"--nice=3 --exclusive x", "nice=3 exclusive | x", ""},
		"an optional value, by letter": {"-k -I60 x", "no-kill immediate=60 | x", ""},
		"a value that is missing":      {"-v --time", "verbose !time | ", ""},
		"a value like an option":       {"--comment --hold x", "comment=--hold | x", ""},
		"what no command has":          {"--frobnicate -y x", "?frobnicate ?y | x", ""},
		"options of a plugin":          {"--launch-in here --polish --lou x", "launch-in=here polish loud | x", ""},
		"two dashes end the options":   {"-n 1 -- -x", "ntasks=1 | -- -x", ""},
		"a dash ends them":             {"-n 1 - -x", "ntasks=1 | - -x", ""},
		"a colon ends them":            {"-n 1 : -n 2", "ntasks=1 | : -n 2", ""},
		"an option of the caller's":    {"--own-way yes x", "own-way=yes | x", ""},
		"one that is cut":              {"--own x", "?own | x", ""},
		"a name that means two things": {"--wait 3 x", "wait | 3 x", "wait=3 | x"},
		"letters that do":              {"-K -W x", "kill-command wait | x", "kill-on-bad-exit wait=x | "},
		"a letter of sbatch alone":     {"-a 1-2 x", "array=1-2 | x", "?a | 1-2 x"},
		"a name of srun alone":         {"--mpi none x", "?mpi | none x", "mpi=none | x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := parsed(submitOptions(), tt.words); got != tt.want {
				t.Errorf("sbatch: %q, want %q", got, tt.want)
			}
			if tt.srun == "" {
				tt.srun = tt.want
			}
			if got := parsed(SrunOptions(), tt.words); got != tt.srun {
				t.Errorf("srun: %q, want %q", got, tt.srun)
			}
		})
	}
}

func parsed(g Grammar, words string) string {
	g.Own = map[string]Argument{"own-way": RequiredValue}
	g.Plugins = func() map[string]Argument { return ParseHelp(pluginHelp) }
	options, rest := g.Parse(strings.Fields(words))
	return said(options) + " | " + strings.Join(rest, " ")
}

// Parse loses no word and reads none twice.
func FuzzParse(f *testing.F) {
	f.Add("-n4\n--exclusive\n-Hc\n2\n--\nx")
	f.Add("--wait\n3\n-\xff\xffc\n:\n")
	f.Fuzz(func(t *testing.T, words string) {
		for _, g := range []Grammar{submitOptions(), SrunOptions()} {
			in := strings.Split(words, "\n")
			options, rest := g.Parse(in)
			var out []string
			for _, o := range options {
				out = append(out, o.Words...)
			}
			if out = append(out, rest...); !slices.Equal(in, out) {
				t.Errorf("of %q came %q", in, out)
			}
			if len(rest) > 0 && isOption(rest[0]) {
				t.Errorf("%q was left", rest[0])
			}
		}
	})
}

func TestParseHelp(t *testing.T) {
	got := ParseHelp("  -A, --account=name          charge\n  -B  --extra-node-info=S[:C]  combine\n" + pluginHelp)
	want := map[string]Argument{"account": RequiredValue, "extra-node-info": RequiredValue,
		"launch-in": RequiredValue, "polish": OptionalValue, "loud": NoValue}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options differ (-want +got):\n%s", diff)
	}
}

// misdescribed are options that srun's help describes wrongly, found by trying them with
// srun 22.05.8.
var misdescribed = map[string]bool{"bcast": true, "container": true, "kill-on-bad-exit": true, "no-kill": true, "overlap": true, "resv-ports": true}

func TestTheTableKnowsTheInstalledSrun(t *testing.T) {
	table := SrunOptions().long
	described := ParseHelp(slurmtest.SrunHelp(t))
	if len(described) < 80 {
		t.Fatalf("only %d options were found in srun --help", len(described))
	}
	for name, arg := range described {
		have, ok := table[name]
		switch {
		case !ok:
			t.Errorf("--%s is not in the table", name)
		case have != arg && !misdescribed[name]:
			t.Errorf("--%s: the table says %d, srun --help says %d", name, have, arg)
		}
	}
}

func TestLettersHaveNames(t *testing.T) {
	for of, g := range map[string]Grammar{"sbatch": submitOptions(), "srun": SrunOptions()} {
		for letter, name := range g.letters {
			if _, ok := g.long[name]; !ok {
				t.Errorf("%s: -%c stands for --%s, which is not in the table", of, letter, name)
			}
		}
	}
}
