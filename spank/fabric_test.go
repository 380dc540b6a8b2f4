package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/journal"
)

// wish is in the environment of jobs with tags on the fabric.
const wish = "JOB:SLURM_SPANK_SLURMV_FABRIC=vni:1"

// tagsDir is where the agent writes the variables of the job of all these tests.
func (n node) tagsDir() string {
	return filepath.Join(strings.ReplaceAll(n.state, "%n", "n1"), "fabric/jobs/4217.5")
}

// writeTags writes the file with the variables, as the agent does.
func (n node) writeTags(t *testing.T, text string) {
	t.Helper()
	n.writeTagsOf(t, "4217.5", text)
}

func (n node) writeTagsOf(t *testing.T, run, text string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(n.tagsDir()), run)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "environment"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// begin runs the hooks of a task, and returns what the host saw after Slurm had moved it into its cgroups.
func (n node) begin(t *testing.T, env []string) []string {
	t.Helper()
	return n.run(t, "exec -- x", env, stepd, "user_init", "task_post_fork", "task_init_privileged")[2:]
}

// thisBoot is a file's first line.
func thisBoot(t *testing.T) string {
	t.Helper()
	id, err := journal.BootID()
	if err != nil {
		t.Fatal(err)
	}
	return "boot " + id + "\n"
}

const tags = "set SLINGSHOT_VNIS=1027\nset EMPTY=\ndefault UCX_IB_PKEY=0x9001\nclear SLURMV_VLAN\nend\n"

var tagsSet = []string{"setenv: SLINGSHOT_VNIS=1027", "setenv: EMPTY=", "setenv: UCX_IB_PKEY=0x9001", "unsetenv: SLURMV_VLAN"}

func TestTasksGetTheVariablesOfTheirTags(t *testing.T) {
	boot := thisBoot(t)
	done, refused := "task_init_privileged: 0", "task_init_privileged: -1"
	notWhole := "error: slurmv: node n1: DIR/environment is not a whole file of root's with the variables about the job's tags: " +
		"remove it, and the next step makes it anew"
	tests := map[string]struct {
		file  string
		env   []string
		plain bool // the step's environment has no wish
		task  string
		want  []string
	}{
		"those of the file":                     {file: boot + tags, want: append(slices.Clone(tagsSet), done)},
		"in every task":                         {file: boot + tags, task: "7", want: append(slices.Clone(tagsSet), done)},
		"none without tags":                     {plain: true, want: []string{done}},
		"in a step from outside of the job":     {file: boot + tags, plain: true, want: append(slices.Clone(tagsSet), done)},
		"a default gives way to the user's":     {file: boot + tags, env: []string{"JOB:UCX_IB_PKEY=0"}, want: append(slices.Delete(slices.Clone(tagsSet), 2, 3), done)},
		"those of the job in which slurmd runs": {file: boot + "clear SLURMV_VLAN\nend\n", env: []string{"SLURMV_VLAN=2001"}, want: []string{"setenv: SLURMV_VLAN=2001", done}},
		"a value with every sign":               {file: boot + "set A=%s=\t'x'\nend\n", want: []string{"setenv: A=%s=\t'x'", done}},
		"the number of the step":                {file: boot + "step FI_CXI_COLL_JOB_STEP_ID\nend\n", want: []string{"setenv: FI_CXI_COLL_JOB_STEP_ID=3", done}},
		"a cut file is refused":                 {file: boot + "set A=1\n", want: []string{"setenv: A=1", notWhole, refused}},
		"an unknown line is refused":            {file: boot + "take A=1\nend\n", want: []string{notWhole, refused}},
		"a line without a value is refused":     {file: boot + "set A\nend\n", want: []string{notWhole, refused}},
		"a file that is too long is refused":    {file: boot + strings.Repeat("clear A\n", 9000) + "end\n", want: []string{notWhole, refused}},
		"a file with a zero byte is refused":    {file: boot + "set A=1\x00\nend\n", want: []string{notWhole, refused}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "echo 'error the agent was started' >&3; exit 1")
			if tt.file != "" {
				n.writeTags(t, tt.file)
			}
			if !tt.plain {
				tt.env = append(tt.env, wish)
			}
			if tt.task != "" {
				tt.env = append(tt.env, "HOST_TASK="+tt.task)
			}
			got := strings.Join(n.begin(t, tt.env), "\n")
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), strings.ReplaceAll(got, n.tagsDir(), "DIR")); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}

// What a user has set in the own shell is not the job's, at a site where jobs can have tags.
func TestAJobWithoutTagsHasNoVariablesOfTags(t *testing.T) {
	const done = "task_init_privileged: 0"
	boot := thisBoot(t)
	tests := map[string]struct {
		file string
		mode os.FileMode
		env  []string
		want []string
	}{
		"at a site with tags":             {boot + "clear SLINGSHOT_VNIS\nend\n", 0o600, nil, []string{"unsetenv: SLINGSHOT_VNIS", done}},
		"of the job in which slurmd runs": {boot + "clear SLINGSHOT_VNIS\nend\n", 0o600, []string{"SLINGSHOT_VNIS=7"}, []string{"setenv: SLINGSHOT_VNIS=7", done}},
		"at a site without tags":          {"", 0, nil, []string{done}},
		"by a file of an earlier boot":    {"boot x\nclear SLINGSHOT_VNIS\nend\n", 0o600, nil, []string{done}},
		"by a file that is cut":           {boot, 0o600, nil, []string{done}},
		"by a file that others can write": {boot + "set A=1\nend\n", 0o666, nil, []string{done}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "echo 'error the agent was started' >&3; exit 1")
			if tt.file != "" {
				n.writeTagsOf(t, "..", tt.file)
				if err := os.Chmod(filepath.Join(n.tagsDir(), "../../environment"), tt.mode); err != nil {
					t.Fatal(err)
				}
			}
			got := n.begin(t, append(tt.env, "JOB:SLINGSHOT_VNIS=9"))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}

// Slurm 22.05 tells a step that is not the batch step no restart count. Users can write one
// themselves, and srun --export=NONE has none. The directories are root's.
func TestTagsAreOfSlurmctldsRun(t *testing.T) {
	tests := map[string]struct {
		runs  []string // on the node, with the file of each
		env   []string
		given string // the run whose file is given; "" for none
	}{
		"the run that Slurm says":          {[]string{"4217.5", "4217.6"}, []string{"HOST_RESTART=5"}, "4217.5"},
		"the only run":                     {[]string{"4217.1"}, []string{"HOST_RESTART=0"}, "4217.1"},
		"the last one":                     {[]string{"4217.2", "4217.10", "4217.9"}, []string{"HOST_RESTART=0"}, "4217.10"},
		"whatever the user says":           {[]string{"4217.1", "4217.7"}, []string{"HOST_RESTART=0", "JOB:SLURM_RESTART_COUNT=1"}, "4217.7"},
		"whatever the outer job has had":   {[]string{"4217.0"}, []string{"HOST_RESTART=0", "JOB:SLURM_RESTART_COUNT=3"}, "4217.0"},
		"none of another run":              {[]string{"4217.4"}, []string{"HOST_RESTART=5"}, ""},
		"none of another job":              {[]string{"42170.0", "421.7", "4217"}, []string{"HOST_RESTART=0"}, ""},
		"none whose name only begins so":   {[]string{"4217.1x", "4217.01", "4217.-1", "4217."}, []string{"HOST_RESTART=0"}, ""},
		"the job's among those of another": {[]string{"42170.9", "4217.1"}, []string{"HOST_RESTART=0"}, "4217.1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "exit 1")
			for _, run := range tt.runs {
				n.writeTagsOf(t, run, thisBoot(t)+"set RUN="+run+"\nend\n")
			}
			got := n.begin(t, tt.env)
			want := []string{"task_init_privileged: 0"}
			if tt.given != "" {
				want = []string{"setenv: RUN=" + tt.given, "task_init_privileged: 0"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}

// Root reads the file in a user's task, so users must not be able to choose which one.
func TestRootReadsOnlyItsOwnFileOfTags(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives files to another user: run it as root")
	}
	boot := thisBoot(t)
	file := func(n node) string { return filepath.Join(n.tagsDir(), "environment") }
	for name, spoil := range map[string]func(n node) error{
		"a file of a user's":            func(n node) error { return os.Chown(file(n), 1000, 0) },
		"a file that a group can write": func(n node) error { return os.Chmod(file(n), 0o620) },
		"a file that all can write":     func(n node) error { return os.Chmod(file(n), 0o602) },
		"a link": func(n node) error {
			return orElse(os.Rename(file(n), n.agent+".env"), func() error { return os.Symlink(n.agent+".env", file(n)) })
		},
		"a directory of a user's": func(n node) error { return os.Chown(n.tagsDir(), 1000, 0) },
		"a link to a directory": func(n node) error {
			return orElse(os.Rename(n.tagsDir(), n.tagsDir()+"x"), func() error { return os.Symlink(n.tagsDir()+"x", n.tagsDir()) })
		},
		"a device": func(n node) error {
			return orElse(os.Remove(file(n)), func() error { return os.Symlink("/dev/zero", file(n)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "exit 1")
			n.writeTags(t, boot+tags)
			if got := n.begin(t, []string{wish}); !slices.Equal(got, append(slices.Clone(tagsSet), "task_init_privileged: 0")) {
				t.Fatalf("before: %q", got)
			}
			if err := spoil(n); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(n.begin(t, []string{wish}), "\n")
			if strings.Contains(got, "setenv") || !strings.Contains(got, "is not a whole file of root's") {
				t.Errorf("the host saw %s", got)
			}
		})
	}
}

func orElse(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

// agentUp is an agent that writes the file, and what it was told.
func (n node) agentUp(t *testing.T) string {
	return fmt.Sprintf(`echo "$*" >> %[1]s.calls
mkdir -p %[2]s && chmod 711 %[2]s && umask 077 && printf '%%s' '%[3]s' > %[2]s/environment
`, n.agent, n.tagsDir(), thisBoot(t)+tags)
}

func (n node) calls() string {
	text, _ := os.ReadFile(n.agent + ".calls")
	return string(text)
}

func (n node) writeAgent(t *testing.T, script string) {
	t.Helper()
	if err := os.WriteFile(n.agent, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestTheFirstTaskHasTheTagsSetUp(t *testing.T) {
	n := newNode(t, "")
	n.writeAgent(t, n.agentUp(t))
	want := append(slices.Clone(tagsSet), "task_init_privileged: 0")
	for when, env := range map[string]string{"first": "HOST_RESTART=0", "second": "JOB:SLURM_RESTART_COUNT=1"} {
		if diff := cmp.Diff(want, n.begin(t, []string{wish, env})); diff != "" {
			t.Errorf("the host saw, at its %s task (-want +got):\n%s", when, diff)
		}
	}
	if locks, _ := filepath.Glob(filepath.Join(n.tagsDir(), "../../locks/*")); len(locks) != 1 || filepath.Base(locks[0]) != "4217" {
		t.Errorf("the locks are %q", locks)
	}
	if n.calls() != "fabric up --config /c\n" {
		t.Errorf("the agent was called with %q", n.calls())
	}
}

func TestAFileOfAnEarlierBootIsOutOfDate(t *testing.T) {
	n := newNode(t, "")
	n.writeAgent(t, n.agentUp(t))
	n.writeTags(t, "boot 00000000-0000-0000-0000-000000000000\nset SLINGSHOT_VNIS=9\nend\n")
	want := append(slices.Clone(tagsSet), "task_init_privileged: 0")
	if diff := cmp.Diff(want, n.begin(t, []string{wish})); diff != "" {
		t.Errorf("the host saw (-want +got):\n%s", diff)
	}
}

// An agent outside of its step's cgroups has no limit, and outlives the job. Slurm 24.11 with
// cgroup v2 then leaves the job's directory behind.
func TestTheAgentOfTagsNeedsThePlacement(t *testing.T) {
	n := newNode(t, "")
	n.writeAgent(t, n.agentUp(t))
	want := []string{"user_init: 0", outside, "task_init_privileged: -1"}
	if diff := cmp.Diff(want, n.run(t, "exec -- x", []string{wish}, stepd, "user_init", "task_init_privileged")); diff != "" {
		t.Errorf("the host saw (-want +got):\n%s", diff)
	}
	if n.calls() != "" {
		t.Errorf("the agent was called with %q", n.calls())
	}
	if got := n.begin(t, []string{wish, "HOST_TASK=7", "HOST_STEP=4"}); !slices.Contains(got, tagsSet[0]) {
		t.Errorf("a task in its cgroups saw %q", got)
	}
}

// A hundred tasks come at once; only one starts the agent, and the others wait for it.
func TestTasksWaitForTheFirst(t *testing.T) {
	n := newNode(t, "")
	n.writeAgent(t, "sleep 0.3\n"+n.agentUp(t))
	seen := make(chan []string)
	for range 8 {
		go func() { seen <- n.begin(t, []string{wish}) }()
	}
	for range 8 {
		if got := <-seen; !slices.Contains(got, tagsSet[0]) {
			t.Errorf("a task saw %q", got)
		}
	}
	if n.calls() != "fabric up --config /c\n" {
		t.Errorf("the agent was called with %q", n.calls())
	}
}

func TestAFailureFailsAStepWithOneSentence(t *testing.T) {
	n := newNode(t, "")
	n.writeAgent(t, `echo call >> `+n.agent+`.calls; echo 'error node n1: cxi0 has no VNI left' >&3; exit 1`)
	refused := []string{"error: slurmv: node n1: cxi0 has no VNI left", "task_init_privileged: -1"}
	if diff := cmp.Diff(refused, n.begin(t, []string{wish})); diff != "" {
		t.Errorf("the first task saw (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(refused[1:], n.begin(t, []string{wish, "HOST_TASK=1"})); diff != "" {
		t.Errorf("the second task saw (-want +got):\n%s", diff)
	}
	if got := n.begin(t, []string{wish, "HOST_STEP=4"}); !slices.Equal(got, refused) {
		t.Errorf("the next step saw %q", got)
	}
	if n.calls() != "call\ncall\n" {
		t.Errorf("the agent was called: %q", n.calls())
	}
}

func TestAnAgentThatWritesElsewhereIsReported(t *testing.T) {
	n := newNode(t, "exit 0")
	got := strings.Join(n.begin(t, []string{wish}), "\n")
	want := "error: slurmv: node n1: DIR has no file of this boot with the variables about the job's tags: " +
		"state= in plugstack.conf must name the directory that paths.state names in slurmv.toml\ntask_init_privileged: -1"
	if diff := cmp.Diff(want, strings.ReplaceAll(got, n.tagsDir(), "DIR")); diff != "" {
		t.Errorf("the host saw (-want +got):\n%s", diff)
	}
}

func TestTheAgentOfTagsLearnsOnlyTheJob(t *testing.T) {
	n := newNode(t, "env -u PWD -u OLDPWD -u SHLVL -u _ | sort | sed 's/^/say /' >&3")
	got := n.begin(t, []string{wish, "SECRET=1", "JOB:LD_PRELOAD=/evil.so"})
	want := []string{
		"log: PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "log: SLURMV_CPUS=8", "log: SLURMV_GID=100",
		"log: SLURMV_JOB=4217", "log: SLURMV_MEM=4096", "log: SLURMV_NODE=n1", "log: SLURMV_NODES=2", "log: SLURMV_NODE_RANK=1",
		"log: SLURMV_RESTART=5", "log: SLURMV_STEP=3", "log: SLURMV_UID=1000",
	}
	if diff := cmp.Diff(want, got[:min(len(got), len(want))]); diff != "" {
		t.Errorf("the agent saw (-want +got):\n%s", diff)
	}
}

// The controller waits for each node's word. So the epilog of a job with tags starts the
// agent even where the job has held nothing; that of any other job does not.
func TestTheEpilogOfAJobWithTagsConfirms(t *testing.T) {
	const say = `echo "say $*" >&3`
	for name, tt := range map[string]struct {
		env  []string
		want []string
	}{
		"a job with tags": {[]string{"SPANK_SLURMV_FABRIC=vni:1"}, []string{"log: reclaim --config /c --job 4217 --deadline 2m --last --fabric", "job_epilog: 0"}},
		"any other job":   {nil, []string{"job_epilog: 0"}},
		// Users choose the environment of a task, but not the epilog's.
		"a user who says so": {[]string{wish}, []string{"job_epilog: 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, say)
			if err := os.MkdirAll(filepath.Join(strings.ReplaceAll(n.state, "%n", "n1"), "jobs/17.0"), 0o755); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, n.run(t, "exec -- x", tt.env, jobScript, "job_epilog")); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}

// Tags of the job in which sbatch runs are not those of the new job. What the user has set
// outside of any job stays.
func TestAJobDoesNotInheritTags(t *testing.T) {
	inherited := []string{"SLINGSHOT_VNIS=1027", "UCX_IB_PKEY=0x1001"}
	kept := []string{"environ: SLINGSHOT_VNIS=1027", "environ: UCX_IB_PKEY=0x1001"}
	for name, tt := range map[string]struct {
		outer   []string
		context string
		want    []string
	}{
		"sbatch in a job with tags": {[]string{"SLURMV_FABRIC_JOB=1"}, sbatch, []string{"init: 0"}},
		"sbatch of a user's own":    {nil, sbatch, append([]string{"init: 0"}, kept...)},
		"srun, which belongs to it": {[]string{"SLURMV_FABRIC_JOB=1"}, srun, append([]string{"init: 0"}, kept...)},
	} {
		t.Run(name, func(t *testing.T) {
			got := host(t, append(tt.outer, inherited...), tt.context, "init", "environ")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}
