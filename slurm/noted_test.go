package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const mark = "|MARK"

// What squeue 22.05.8 answered: a job, a task of an array, the first component of a
// heterogeneous job, and what waits of an array.
const noted = "2|2|N/A|1|RUNNING|1795502974|n[1-2]|ask bob" + mark + "\n" +
	"3|3_3|N/A|0|RUNNING|1795502974|n2|(null)" + mark + "\n" +
	"6|6+0|6|0|CONFIGURING|1795503246|n2|" + mark + "\n" +
	"10|10_[2-9%1]|N/A|0|PENDING|N/A||(null)" + mark + "\n"

var notedJobs = []NotedJob{
	{Job: 2, Restart: 1, Name: "2", State: "RUNNING", Start: time.Unix(1795502974, 0), NodeList: "n[1-2]", AdminComment: "ask bob"},
	{Job: 3, Name: "3_3", State: "RUNNING", Start: time.Unix(1795502974, 0), NodeList: "n2"},
	{Job: 6, Name: "6+0", HetJob: 6, State: "CONFIGURING", Start: time.Unix(1795503246, 0), NodeList: "n2"},
	{Job: 10, Name: "10_[2-9%1]", State: "PENDING"},
}

func TestParseNoted(t *testing.T) {
	const before = "2|2|N/A|1|RUNNING|1795502974|n1|"
	job := notedJobs[0]
	job.NodeList = "n1"
	noting := func(comment string) []NotedJob {
		job.AdminComment = comment
		return []NotedJob{job}
	}
	tests := map[string]struct {
		text string
		want []NotedJob // nil for an error
	}{
		"several jobs":                {noted, notedJobs},
		"separators in a comment":     {before + "a|b||" + mark + "\n", noting("a|b||")},
		"a record in a comment":       {before + "a\n3|3|N/A|0|RUNNING|1|n2|b" + mark + "\n", noting("a\n3|3|N/A|0|RUNNING|1|n2|b")},
		"blanks in a comment":         {before + "  a  " + mark + "\n", noting("  a  ")},
		"a record without its end":    {noted + before + "a", nil},
		"a record whose end is cut":   {noted + before + "a" + mark, nil},
		"too few fields":              {"2|2|N/A|1|RUNNING|1795502974|n1" + mark + "\n", nil},
		"a number that is none":       {"x|2|N/A|1|RUNNING|1795502974|n1|" + mark + "\n", nil},
		"a number beyond any job":     {"4294967296|2|N/A|1|RUNNING|1795502974|n1|" + mark + "\n", nil},
		"restarts that are no number": {"2|2|N/A|N/A|RUNNING|1795502974|n1|" + mark + "\n", nil},
		"a time that is local":        {"2|2|N/A|1|RUNNING|2026-11-24T06:49:34|n1|" + mark + "\n", nil},
		"a component of what":         {"2|2|x|1|RUNNING|1795502974|n1|" + mark + "\n", nil},
		"a message of squeue's":       {"slurm_load_jobs error\n" + noted, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseNoted(tt.text, mark)
			if (err != nil) != (tt.want == nil) {
				t.Fatalf("error = %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("jobs differ (-want +got):\n%s", diff)
			}
		})
	}
	if jobs, err := parseNoted("", mark); len(jobs) != 0 || err != nil {
		t.Errorf("no jobs: %v, %v", jobs, err)
	}
}

// Nobody who does not know the mark writes another job, or changes a field.
func FuzzParseNoted(f *testing.F) {
	f.Add("ask bob")
	f.Add("a|b\n3|3|N/A|0|RUNNING|1|n2|b" + mark)
	f.Fuzz(func(t *testing.T, comment string) {
		end := newMark()
		text := "2|2|N/A|1|RUNNING|1795502974|n[1-2]|" + comment + end + "\n"
		want := notedJobs[0]
		want.AdminComment = value(comment)
		got, err := parseNoted(text+text, end)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]NotedJob{want, want}, got); diff != "" {
			t.Errorf("jobs differ (-want +got):\n%s", diff)
		}
	})
}

// fakeQueue answers with noted, and with the mark that it is asked for.
const fakeQueue = `[ "$SLURM_TIME_FORMAT" = %s ] || { echo "times are local" >&2; exit 1; }
echo "$*" >>"$HERE/asked"
for last; do :; done
sed "s/|MARK$/|${last##*|}/" "$HERE/answer"`

func queue(t *testing.T, answer string) Comments {
	t.Helper()
	bin := commands(t, map[string]string{"squeue": fakeQueue, "scontrol": `printf '%s\n' "$@" >"$HERE/ordered"`})
	if err := os.WriteFile(filepath.Join(bin, "answer"), []byte(answer), 0o644); err != nil {
		t.Fatal(err)
	}
	return Comments{Client{Bin: bin}}
}

func (c Client) file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Bin, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAdminComment(t *testing.T) {
	for id, want := range map[uint32]string{2: "", 3: "", 4: "AdminComment of job 4: squeue lists it 0 times", 10: ""} {
		c := queue(t, noted)
		job, err := c.AdminComment(t.Context(), id)
		if want != "" {
			if err == nil || err.Error() != want {
				t.Errorf("error = %v, want %s", err, want)
			}
			continue
		}
		if err != nil || job.Job != id {
			t.Errorf("job %d: %+v, %v", id, job, err)
		}
		if asked := c.file(t, "asked"); !strings.HasPrefix(asked, "--noheader --all --local --states=all --jobs="+decimal(id)+" --Format=") {
			t.Errorf("squeue was asked %s", asked)
		}
	}
	const twice = "AdminComment of job 2: squeue lists it 2 times"
	if _, err := queue(t, noted+noted).AdminComment(t.Context(), 2); err == nil || err.Error() != twice {
		t.Errorf("error = %v, want %s", err, twice)
	}
}

func TestAdminCommentOfAJobThatIsGone(t *testing.T) {
	bin := commands(t, map[string]string{"squeue": `echo slurm_load_jobs error: Invalid job id specified >&2; exit 1`})
	if _, err := (Comments{Client{Bin: bin}}).AdminComment(t.Context(), 2); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("error = %v", err)
	}
}

func TestAdminComments(t *testing.T) {
	c := queue(t, noted)
	for range 2 {
		got, err := c.AdminComments(t.Context())
		if diff := cmp.Diff(notedJobs, got); diff != "" || err != nil {
			t.Errorf("error %v, jobs differ (-want +got):\n%s", err, diff)
		}
	}
	asked := strings.Fields(c.file(t, "asked"))
	if len(asked) != 10 || asked[3] != "--states="+holdingStates || asked[4] == asked[9] {
		t.Errorf("squeue was asked twice, each time with another mark: %q", asked)
	}
}

// scontrol would change all tasks of an array, or all components of a heterogeneous job.
func TestSetAdminComment(t *testing.T) {
	const comment = "ask bob  (50%)\n|x=1"
	for name, ok := range map[string]bool{"2": true, "3_3": true, "6+0": true, "10_[2-9%1]": false, "10_": false, "": false, "2,3": false, "2 nodelist=n1": false} {
		c := queue(t, "")
		err := c.SetAdminComment(t.Context(), NotedJob{Job: 2, Name: name}, comment)
		if !ok {
			if _, ordered := os.Stat(filepath.Join(c.Bin, "ordered")); ordered == nil || err == nil {
				t.Errorf("%q is the name of a job", name)
			}
			continue
		}
		if want := "update\njobid=" + name + "\nadmincomment=" + comment + "\n"; err != nil || c.file(t, "ordered") != want {
			t.Errorf("error %v, scontrol was ordered %q, want %q", err, c.file(t, "ordered"), want)
		}
	}
}

// slurmctld changes no job while slurmdbd gives it its number in the database.
func TestAdminCommentWhileTheDatabaseIsSlow(t *testing.T) {
	const scontrol = `echo asked >>"$HERE/asked"
test $(wc -l <"$HERE/asked") -gt %s && exit
echo "slurm_update error: Job update not available right now, the DB index is being set, try again in a bit" >&2
exit 1`
	for refused, want := range map[string]string{"2": "", "99": "slurmdbd or its database is slow"} {
		c := Comments{Client{Bin: commands(t, map[string]string{"scontrol": strings.Replace(scontrol, "%s", refused, 1)})}}
		err := c.SetAdminComment(t.Context(), NotedJob{Job: 2, Name: "2"}, "text")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("refused %s times: %v, want %q", refused, err, want)
		}
	}
}

func TestInSecondsKeepsTheEnvironment(t *testing.T) {
	env := append(make([]string, 0, 9), "PATH=/site", "SLURM_CONF=/x")
	c := Client{Env: env}.inSeconds()
	if diff := cmp.Diff([]string{"PATH=/site", "SLURM_CONF=/x", "SLURM_TIME_FORMAT=%s"}, c.Env); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"", ""}, env[2:4:4]); diff != "" {
		t.Errorf("the other client's environment has changed:\n%s", diff)
	}
}
