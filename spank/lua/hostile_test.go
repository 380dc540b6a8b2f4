package slurm

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// timed is jobSubmit, and prints before its result how many seconds of CPU the call took.
var timed = strings.Replace(jobSubmit, "print(slurm_job_submit(job_desc))", `
local before = os.clock()
local result = slurm_job_submit(job_desc)
print(string.format("%f", os.clock() - before))
print(result)`, 1)

// tooLong is far more than any of these may take, and far less than a search that is
// quadratic in the length of its text: 20 000 letters took 2 s.
const tooLong = 0.05

// submitTimed calls the snippet in one Lua, and returns what it printed beside the time.
func submitTimed(t *testing.T, lua, job string) []string {
	t.Helper()
	lines := runIn(t, lua, timed, "{"+job+"}")
	at := len(lines) - 2
	seconds, err := strconv.ParseFloat(lines[at], 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %.3f ms", lua, seconds*1000)
	if seconds > tooLong {
		t.Errorf("%s: slurmctld held its locks for %f s", lua, seconds)
	}
	return append(lines[:at:at], lines[at+1])
}

// slurmctld calls the script with its locks held, so no text of a submitter's may keep
// it; and none may let the job pass without the resources of its VMs.
func TestHostileRequests(t *testing.T) {
	const refused = "user: slurm-v: SLURMV_REQUEST is not as Slurm-V writes it: "
	const alphabet = refused + "it has something else than small letters, digits, underscores, colons and commas"
	tests := map[string]struct{ request, want string }{
		"a wall of letters":             {`string.rep("a", 400000)`, refused + "it is 400000 bytes long; at most 200 are allowed"},
		"thousands of items":            {`string.rep("cpus:1,", 60000)`, refused + "it is 420000 bytes long; at most 200 are allowed"},
		"a megabyte behind a request":   {`"cpus:4,mem:2560," .. string.rep("x", 2 ^ 20)`, refused + "it is 1048592 bytes long; at most 200 are allowed"},
		"a number that is infinite":     {`"cpus:1,mem:" .. string.rep("9", 400)`, refused + "it is 411 bytes long; at most 200 are allowed"},
		"a number of too many digits":   {`"cpus:1,mem:1234567890123"`, refused + "mem has 13 digits; at most 12 are allowed"},
		"letters as long as is allowed": {`string.rep("a", 200)`, refused + `"` + strings.Repeat("a", 200) + `" is not a name and a number`},
		"nothing":                       {`""`, refused + `"" is not a name and a number`},
		"no colon":                      {`"cpus"`, refused + `"cpus" is not a name and a number`},
		"two colons":                    {`"cpus:1:2,mem:1"`, refused + `"cpus:1:2" is not a name and a number`},
		"an item too many":              {`"cpus:1,mem:1,"`, refused + `"" is not a name and a number`},
		"an unknown name":               {`"cpus:1,mem:1,gpu:1"`, refused + `"gpu" is unknown, or there twice`},
		"a name twice":                  {`"cpus:1,mem:1,cpus:64"`, refused + `"cpus" is unknown, or there twice`},
		"no memory":                     {`"cpus:4"`, refused + "it does not name both cpus and mem"},
		"memory of nothing":             {`"cpus:4,mem:0"`, refused + "it does not name both cpus and mem"},
		"VFs of no VM":                  {`"vf:1,lic_vni:1"`, refused + "it does not name both cpus and mem"},
		"CPUs beside licences alone":    {`"cpus:4,lic_vni:1"`, refused + "it does not name both cpus and mem"},
		"a licence of anything":         {`"lic_matlab:1"`, refused + `"lic_matlab" is unknown, or there twice`},
		"a licence twice":               {`"lic_vni:1,lic_vni:1"`, refused + `"lic_vni" is unknown, or there twice`},
		"a wall of underscores":         {`string.rep("_", 200)`, refused + `"` + strings.Repeat("_", 200) + `" is not a name and a number`},
		"a number below zero":           {`"cpus:4,mem:-1"`, alphabet},
		"bytes":                         {`"cpus:4\0,mem:1\255"`, alphabet},
		"a format":                      {`"cpus:%d,mem:1"`, alphabet},
		"several":                       {`"cpus:4,mem:2560", "SLURMV_REQUEST=cpus:1,mem:1"`, refused + "it is there 2 times"},
	}
	for _, lua := range interpreters(t) {
		for name, tt := range tests {
			t.Run(lua+"/"+name, func(t *testing.T) {
				got := submitTimed(t, lua, `spank_job_env = { [0] = "SLURMV_REQUEST=" .. `+tt.request+` }`)
				if diff := cmp.Diff([]string{tt.want, "-1"}, got); diff != "" {
					t.Errorf("slurmctld saw (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Other texts beside an honest request may be long as well.
func TestHostileSurroundings(t *testing.T) {
	const vms = `spank_job_env = { [0] = "SLURMV_REQUEST=cpus:4,mem:2560,vf:2" }, `
	const tags = `spank_job_env = { [0] = "SLURMV_REQUEST=lic_vni:2" }, `
	const most = "999999999999"
	given := []string{"pn_min_cpus=4", "min_mem_per_node=2560", "gres=vf:2", "0"}
	tests := map[string]struct {
		job  string
		want []string
	}{
		"another variable of a megabyte": {
			`spank_job_env = { [0] = string.rep("S", 2 ^ 20), "SLURMV_REQUEST" .. string.rep("a", 2 ^ 20), "SLURMV_REQUEST=cpus:4,mem:2560,vf:2" }`, given},
		"thousands of other variables": {
			`spank_job_env = (function() local all = {}; for i = 1, 5000 do all[i] = "SLURM_" .. i end; all[0] = "SLURMV_REQUEST=cpus:4,mem:2560,vf:2"; return all end)()`, given},
		"thousands of GRES": {vms + `gres = string.rep("gres:vf,", 50000)`,
			[]string{"user: slurm-v: --gres is 400000 bytes long; with VFs at most 1000 are allowed", "-1"}},
		"a GRES that is all one": {vms + `gres = "vf" .. string.rep(":1", 200000)`,
			[]string{"user: slurm-v: --gres is 400002 bytes long; with VFs at most 1000 are allowed", "-1"}},
		"as many GRES as are allowed": {vms + `gres = string.rep("vf:", 333)`,
			[]string{"user: slurm-v: the VMs need 2 of the GRES vf on each node and --gres gives 1; leave vf out of it or raise it", "-1"}},
		"a GRES without end": {vms + `gres = "vf:" .. string.rep("9", 400) .. "p"`,
			[]string{"pn_min_cpus=4", "min_mem_per_node=2560", "0"}},
		"thousands of licences": {tags + `licenses = string.rep("slurmv_vni,", 50000)`,
			[]string{"user: slurm-v: --licenses is 550000 bytes long; with tags on the fabric at most 1000 are allowed", "-1"}},
		"as many licences as are allowed": {tags + `licenses = string.rep("a:", 500)`,
			[]string{"licenses=" + strings.Repeat("a:", 500) + ",slurmv_vni:2", "0"}},
		"a licence that is all spaces": {tags + `licenses = string.rep(" ", 1000)`,
			[]string{"licenses=" + strings.Repeat(" ", 1000) + ",slurmv_vni:2", "0"}},
		"a licence without end": {tags + `licenses = "slurmv_vni:" .. string.rep("9", 400)`, []string{"0"}},
		"more tags than there are": {`spank_job_env = { [0] = "SLURMV_REQUEST=lic_vni:` + most + `" }`,
			[]string{"licenses=slurmv_vni:" + most, "0"}},
		"the largest numbers": {
			`spank_job_env = { [0] = "SLURMV_REQUEST=cpus:` + most + `,mem:` + most + `,vf:` + most + `,vfbw:` + most + `" }, cpus_per_task = 65533, ntasks_per_node = 65533`,
			[]string{"ntasks_per_node=65534", "pn_min_cpus=1000000027104", "min_mem_per_node=999999999999", "gres=vf:999999999999,vfbw:999999999999", "0"}},
	}
	for _, lua := range interpreters(t) {
		for name, tt := range tests {
			t.Run(lua+"/"+name, func(t *testing.T) {
				if diff := cmp.Diff(tt.want, submitTimed(t, lua, tt.job)); diff != "" {
					t.Errorf("slurmctld saw (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Slurm 22.05 accepts a job whose script fails, and then the site's own rules, which
// stand behind the call of ours, have been skipped.
func TestAFaultRefusesTheJob(t *testing.T) {
	site := strings.Replace(jobSubmit, "print(slurm_job_submit(job_desc))", `
function slurm_job_submit(job_desc)
	if slurmv_job_submit(job_desc) ~= slurm.SUCCESS then
		return slurm.ERROR
	end
	print("the site's own rules")
	return slurm.SUCCESS
end
print(slurm_job_submit(job_desc))`, 1)
	const vms = `{ spank_job_env = { [0] = "SLURMV_REQUEST=cpus:4,mem:2560" } }`
	tests := map[string]struct {
		job  string
		want []string
	}{
		"without one": {vms, []string{"pn_min_cpus=4", "min_mem_per_node=2560", "the site's own rules", "0"}},
		"with one": {`setmetatable(` + vms + `, { __index = function(_, field) if field == "gres" then error("a fault", 0) end end })`, []string{
			"log: slurm-v: the rules for VM jobs failed: a fault",
			"user: slurm-v: the rules for VM jobs failed on this one; tell the administrators of the site", "-1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, run(t, site, tt.job)); diff != "" {
				t.Errorf("slurmctld saw (-want +got):\n%s", diff)
			}
		})
	}
}
