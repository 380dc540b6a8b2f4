package opensm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
)

const siteText = `# the site's own
Default=0x7fff, ipoib : ALL=full ;
storage=0x0042, ipoib, defmember=full :   # two servers
	0x7cfe900300cb743a, 0x7cfe900300cb743e ;
`

// vfsOf are the ports of n VFs of a job.
func vfsOf(job uint32, n int) (guids []fabric.GUID) {
	for vm := range n {
		guids = append(guids, fabric.PortGUID(job, vm, 0))
	}
	return guids
}

const hostPort fabric.GUID = 0x7cfe900300cb7400

func twoJobs() Partitions {
	return Partitions{0x1005: {hostPort}, 0x1004: vfsOf(7, 2)}
}

const blockOfTwoJobs = `# slurm-v begin
# The partitions of jobs. slurmv writes them; changes here are lost.
slurmv_1004=0x1004, indx0, ipoib, defmember=full : 0x0250000000700000, 0x0250000000700040 ;
Default=0x7fff, defmember=limited : 0x0250000000700000, 0x0250000000700040 ;
slurmv_1005=0x1005, ipoib, defmember=full : 0x7cfe900300cb7400 ;
# slurm-v end
`

func put(t *testing.T, p Partitions, text string) string {
	t.Helper()
	next, err := p.Put(text)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestPutAndParse(t *testing.T) {
	const empty = "# slurm-v begin\n" + notice + "\n# slurm-v end\n"
	tests := map[string]struct {
		partitions Partitions
		text, want string
	}{
		"a block is added":                        {twoJobs(), siteText, siteText + blockOfTwoJobs},
		"the site's text ends without a newline":  {twoJobs(), strings.TrimSuffix(siteText, "\n"), siteText + blockOfTwoJobs},
		"a block is replaced":                     {twoJobs(), siteText + empty, siteText + blockOfTwoJobs},
		"the site's text goes on below the block": {twoJobs(), siteText + empty + "#\n\nx=0x1 : ALL;", siteText + blockOfTwoJobs + "#\n\nx=0x1 : ALL;"},
		"the block is all that is left above":     {twoJobs(), empty + "x=0x1 : ALL;", blockOfTwoJobs + "x=0x1 : ALL;"},
		"the last job has gone":                   {Partitions{}, siteText + blockOfTwoJobs, siteText + empty},
		"nothing comes to nothing":                {Partitions{}, "", ""},
		"nothing comes to a file without a block": {Partitions{}, siteText, siteText},
		"a member is named once":                  {Partitions{0x1005: {hostPort, hostPort}, 0x1004: append(vfsOf(7, 2), vfsOf(7, 1)...)}, siteText, siteText + blockOfTwoJobs},
		"a partition without members":             {Partitions{0x1006: nil}, siteText, siteText + empty},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := put(t, tt.partitions, tt.text)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Fatalf("the file differs (-want +got):\n%s", diff)
			}
			again, err := parse(got)
			if err != nil {
				t.Fatal(err)
			}
			if next := put(t, again, got); next != got {
				t.Errorf("what was read is written as\n%s\nnot\n%s", next, got)
			}
		})
	}
}

func TestParseReadsWhatPutWrites(t *testing.T) {
	for _, p := range []Partitions{{}, twoJobs(), {1: vfsOf(1, 1), 0x7ffe: vfsOf(9, 100)}} {
		got, err := parse(put(t, p, siteText))
		if diff := cmp.Diff(p, got); err != nil || diff != "" {
			t.Errorf("%v, partitions differ (-want +got):\n%s", err, diff)
		}
	}
}

// OpenSM reads 4094 bytes of a line, and then the rest as another one.
func TestLinesAreShort(t *testing.T) {
	text := put(t, Partitions{0x1004: append(vfsOf(7, 5000), hostPort)}, siteText)
	for line := range strings.Lines(text) {
		if len(line) > 500 {
			t.Fatalf("a line of %d bytes: %.80s…", len(line), line)
		}
	}
}

func TestTextThatIsNotTouched(t *testing.T) {
	tests := map[string]struct {
		text string
		line int
		want string
	}{
		"begin without end":                    {siteText + "# slurm-v begin\nx=0x1 : ALL;\n", 6, "is not a line of Slurm-V's"},
		"begin without end, and nothing after": {siteText + "# slurm-v begin", 5, `"# slurm-v begin" has no "# slurm-v end" after it`},
		"end without begin":                    {siteText + "# slurm-v end\n", 5, `"# slurm-v end" without a "# slurm-v begin" before it`},
		"a second end":                         {siteText + blockOfTwoJobs + "# slurm-v end\n", 11, `without a "# slurm-v begin"`},
		"two blocks":                           {blockOfTwoJobs + siteText + blockOfTwoJobs, 11, "after that of line 1"},
		"begin in a block":                     {siteText + "# slurm-v begin\n# slurm-v begin\n# slurm-v end\n", 6, "after that of line 5"},
		"a line of the site in the block":      {siteText + strings.Replace(blockOfTwoJobs, "Default", "Defaults", 1), 8, "the site's own lines belong above"},
		"lines of Windows":                     {strings.ReplaceAll(siteText, "\n", "\r\n"), 1, "carriage return"},
		"one line of Windows":                  {siteText + "# slurm-v begin\r\n# slurm-v end\n", 5, "carriage return"},
		"a line that is cut short":             {siteText + strings.Replace(blockOfTwoJobs, "0x0250000000700040 ;", "0x02", 1), 7, "after it"},
		"two statements in a line":             {siteText + strings.Replace(blockOfTwoJobs, "0 ;", "0 ; x=0x1 : ALL;", 1), 7, "after it"},
		"a member that is none":                {siteText + strings.Replace(blockOfTwoJobs, "0x7cfe900300cb7400", "ALL", 1), 9, `"ALL" is not a GUID`},
		"a member with a membership":           {siteText + strings.Replace(blockOfTwoJobs, "0x7cfe900300cb7400", "0x7cfe900300cb7400=full", 1), 9, "is not a GUID"},
		"a member that is zero":                {siteText + strings.Replace(blockOfTwoJobs, "0x7cfe900300cb7400", "0x0", 1), 9, "without a GUID"},
		"a P_Key that is none":                 {siteText + strings.Replace(blockOfTwoJobs, "=0x1004", "=1004x", 1), 7, "is not a P_Key"},
		"the default partition's P_Key":        {siteText + strings.Replace(blockOfTwoJobs, "=0x1004", "=0x7fff", 1), 7, "0x7fff is not the P_Key of a job"},
		"a P_Key with the bit of full members": {siteText + strings.Replace(blockOfTwoJobs, "=0x1004", "=0x9004", 1), 7, "0x9004 is not the P_Key of a job"},

		"the site's last partition does not end":     {siteText + "x=0x0043 : ALL,\n# more\n\t0x12\n", 5, "a partition begins here"},
		"a partition above the block does not end":   {siteText + "x=0x0043 : ALL\n" + blockOfTwoJobs, 5, "a partition begins here"},
		"the site has a job's P_Key":                 {siteText + "mine=0x9004 : ALL;\n", 5, `partition "mine" has the P_Key 0x9004 of a job`},
		"the site has it below the block":            {siteText + blockOfTwoJobs + "\nmine = 0x1004, ipoib:ALL;\n", 12, `"mine" has the P_Key 0x9004`},
		"the site has it without a name":             {siteText + "0x1004: ALL;\n", 5, "has the P_Key 0x9004"},
		"the site has it after another":              {siteText + "x=0x42:ALL; 4100 : ALL;\n", 5, "has the P_Key 0x9004"},
		"the default partition is below the block":   {"x=0x42:ALL;\n" + blockOfTwoJobs + "Default=0x7fff : ALL=full ;", 8, "stands below Slurm-V's lines"},
		"the default partition is so by its name":    {"x=0x42:ALL;\n" + blockOfTwoJobs + "Default, ipoib : ALL=full ;", 8, "stands below Slurm-V's lines"},
		"the default partition is so by its number":  {"x=0x42:ALL;\n" + blockOfTwoJobs + "all=0xffff, ipoib : ALL=full ;", 8, "stands below Slurm-V's lines"},
		"the site has no partition":                  {"# nothing yet\n", 0, `write the line "Default=0x7fff, ipoib : ALL=full ;"`},
		"the site has an empty file":                 {"", 0, "it has no partition of the site"},
		"the site has none but a block":              {blockOfTwoJobs, 0, "it has no partition of the site"},
		"the site has none but one that is not read": {"# x=0x42 : ALL;\n", 0, "it has no partition of the site"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			next, err := twoJobs().Put(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error = %v, want one that says %q; the text is\n%s", err, tt.want, next)
			}
			var where *textError
			if errors.As(err, &where) != (tt.line > 0) || where != nil && where.Line != tt.line {
				t.Errorf("error = %v, want line %d", err, tt.line)
			}
		})
	}
}

func TestPartitionsThatOpenSMWouldRefuse(t *testing.T) {
	for want, p := range map[string]Partitions{
		"0x0000 is not": {0: vfsOf(7, 1)}, "0x7fff is not": {0x7fff: vfsOf(7, 1)}, "0x8001 is not": {0x8001: vfsOf(7, 1)}, "without a GUID": {1: {0}},
	} {
		if _, err := p.Put(siteText); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want one that says %q", err, want)
		}
	}
}

func TestNotes(t *testing.T) {
	const text = siteText + "a=0x1 : ALL=full;\nb=0x2, defmember=full : ALL_CAS;\nc=0x3 : ALL, SELF=full;\nd=0x4, defmember=full : ALL=limited;\n"
	notes := Notes(text)
	for i, want := range []string{`line 5: all ports are full members of the partition "a"`, `line 6: all ports are full members of the partition "b"`} {
		if len(notes) != 2 || !strings.HasPrefix(notes[i], want) {
			t.Errorf("notes are %q", notes)
		}
	}
}

// Whatever a site has written, its bytes stay, and what is written is read again.
func FuzzPut(f *testing.F) {
	f.Add(siteText)
	f.Add(siteText + blockOfTwoJobs + "#\nx=0x1 : ALL;")
	f.Add("x=1:;# slurm-v begin")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := cut(text)
		if err != nil {
			return
		}
		next, err := twoJobs().Put(text)
		if err != nil {
			return
		}
		if !strings.HasPrefix(next, l.before) || !strings.HasSuffix(next, l.after) {
			t.Fatalf("of the site's text\n%s\nis left\n%s", text, next)
		}
		if got, err := parse(next); err != nil || fmt.Sprint(got) != fmt.Sprint(twoJobs()) {
			t.Errorf("read %v, %v of\n%s", got, err, next)
		}
	})
}
