package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTags(t *testing.T) {
	tests := map[string]struct {
		text string
		want Tags
	}{
		"none":                              {"", nil},
		"a range":                           {"1024-65535", Tags{{1024, 65535}}},
		"hexadecimal":                       {"0x1000-0x1FFF", Tags{{0x1000, 0x1fff}}},
		"one tag":                           {"7", Tags{{7, 7}}},
		"a list":                            {"1024-2047, 4096-8191,9000", Tags{{1024, 2047}, {4096, 8191}, {9000, 9000}}},
		"a list in another order":           {"30-39,10-19,20-29", Tags{{10, 19}, {20, 29}, {30, 39}}},
		"every tag, which no kind of a tag": {"0-65535", Tags{{0, 65535}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTags(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tags differ (-want +got):\n%s", diff)
			}
			if again, err := ParseTags(got.String()); err != nil || !cmp.Equal(got, again) {
				t.Errorf("%s is read back as %v, %v", got, again, err)
			}
		})
	}
}

func TestParseFabric(t *testing.T) {
	tests := map[string]struct {
		text string
		want func(*Fabric)
	}{
		"nothing":                   {"", func(*Fabric) {}},
		"no pools, and both quotes": {"[fabric]\nvlan.pool = ''\nvni.pool = \"\"", func(*Fabric) {}},
		"VLANs":                     {`fabric.vlan.pool = "2000-2999"`, func(f *Fabric) { f.VLAN.Pool = Tags{{2000, 2999}} }},
		"P_Keys and OpenSM on another host": {
			"[fabric.pkey]\npool = \"0x1000-0x1fff\"\npartitions_file = \"/etc/opensm/partitions.conf\"\nopensm_pid_file = \"/run/opensm.pid\"\nopensm_command = [\"ssh\", \"sm1\"]",
			func(f *Fabric) {
				f.PKey.Pool, f.PKey.PartitionsFile = Tags{{0x1000, 0x1fff}}, "/etc/opensm/partitions.conf"
				f.PKey.OpenSMPIDFile, f.PKey.OpenSMCommand = "/run/opensm.pid", []string{"ssh", "sm1"}
			},
		},
		"P_Keys and UFM": {
			"[fabric.pkey]\npool = \"1-9\"\nufm = \"https://ufm.site/api\"\nufm_token_file = \"/etc/t\"\nufm_ca_file = \"/etc/ca.pem\"",
			func(f *Fabric) {
				f.PKey.Pool, f.PKey.UFM = Tags{{1, 9}}, "https://ufm.site/api"
				f.PKey.UFMTokenFile, f.PKey.UFMCAFile = "/etc/t", "/etc/ca.pem"
			},
		},
		"VNIs": {
			"[fabric.vni]\npool = \"2-9,11-65535\"\nper_job = 4\nclasses = [\"bulk\"]\nlibcxi = \"/opt/cray/lib64/libcxi.so\"",
			func(f *Fabric) {
				f.VNI = VNIPool{Pool: Tags{{2, 9}, {11, 65535}}, PerJob: 4, Classes: []string{"bulk"}, LibCXI: "/opt/cray/lib64/libcxi.so"}
			},
		},
		"further pools keep what is not said": {
			`fabric.pool = {a = {kind = "vni", pool = "2-9", partitions = ["x"]}, b = {kind = "vni", pool = "11-19", per_job = 0}}`,
			func(f *Fabric) {
				f.Pool = map[string]TagPool{
					"a": {Kind: TagVNI, Pool: Tags{{2, 9}}, PerJob: 1, Partitions: []string{"x"}},
					"b": {Kind: TagVNI, Pool: Tags{{11, 19}}},
				}
			},
		},
		"pools of two kinds may have the same numbers": {
			"[fabric]\nvlan.pool = \"2-9\"\nvni.pool = \"2-9\"",
			func(f *Fabric) { f.VLAN.Pool, f.VNI.Pool = Tags{{2, 9}}, Tags{{2, 9}} },
		},
		"licences": {"slurm.resources = \"job_submit\"\n[fabric]\nlicenses = true\nvni.pool = \"2-9\"", func(f *Fabric) { f.Licenses, f.VNI.Pool = true, Tags{{2, 9}} }},
		"collectives": {
			"[fabric.collectives]\nurl = \"https://fm.site:8443\"\ntoken_file = \"/etc/t\"\naddrs_per_job = 23",
			func(f *Fabric) {
				f.Collectives = Collectives{URL: "https://fm.site:8443", TokenFile: "/etc/t", AddrsPerJob: 23, MinNodes: 2, Timeout: 5}
			},
		},
		"another ledger": {"[fabric]\nstate = \"/shared/ledger\"\ncooling = 0\nexhausted = \"empty\"", func(f *Fabric) {
			f.State, f.Cooling, f.Exhausted = "/shared/ledger", 0, ExhaustedEmpty
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := defaultFabric()
			tt.want(&want)
			got, err := Parse("test.toml", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Fabric); diff != "" {
				t.Errorf("configuration differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefusesFabrics(t *testing.T) {
	pool := func(name, text string) string { return "[fabric.pool." + name + "]\n" + text + "\n" }
	const vni, pkey, coll = "[fabric.vni]\npool = ", "[fabric.pkey]\n", "[fabric.collectives]\n"
	tests := map[string]struct{ text, want string }{
		"a VLAN that is reserved":      {`fabric.vlan.pool = "1-4095"`, `test.toml: fabric.vlan.pool: 1-4095 goes beyond the VLANs that there are; stay within 1-4094`},
		"a VLAN for untagged":          {`fabric.vlan.pool = "0-10"`, `fabric.vlan.pool: 0-10 goes beyond the VLANs`},
		"the P_Key of everybody":       {`fabric.pkey.pool = "0x1000-0x7fff"`, `fabric.pkey.pool: 0x1000-0x7fff goes beyond the P_Keys that there are; stay within 0x0001-0x7ffe`},
		"P_Keys with the member bit":   {`fabric.pkey.pool = "0x9000-0x9fff"`, `fabric.pkey.pool: 0x9000-0x9fff goes beyond the P_Keys`},
		"a P_Key of nobody":            {`fabric.pkey.pool = "0-9"`, `fabric.pkey.pool: 0x0000-0x0009 goes beyond the P_Keys`},
		"a VNI of nobody":              {vni + `"0,2-9"`, `fabric.vni.pool: 0-0 goes beyond the VNIs that there are; stay within 1-65535`},
		"VNIs of 17 bits":              {vni + `"1024-65536"`, `test.toml:2: fabric.vni.pool: 1024-65536 goes beyond 65535, and tags have 16 bits`},
		"VNI 1":                        {vni + `"1-9"`, `fabric.vni.pool: VNI 1 belongs to the default service of the cards, which all users share; leave it out`},
		"VNI 10":                       {vni + `"2-65535"`, `fabric.vni.pool: VNI 10 belongs to the default service`},
		"VNI 10 as the last":           {vni + `"5-10"`, `fabric.vni.pool: VNI 10 belongs to the default service`},
		"a range backwards":            {vni + `"2047-1024"`, `test.toml:2: fabric.vni.pool: 2047-1024 ends before it begins; write 1024-2047`},
		"a range without end":          {vni + `"1024-"`, `test.toml:2: fabric.vni.pool: 1024- is not a range of tags; use ranges such as "1024-2047,4096-8191"`},
		"a range without beginning":    {vni + `"-5-10"`, `fabric.vni.pool: -5-10 is not a range of tags`},
		"an empty range in a list":     {vni + `"2-9,"`, `fabric.vni.pool: "" is not a range of tags`},
		"a number with underscores":    {vni + `"1_0-20"`, `fabric.vni.pool: 1_0-20 is not a range of tags`},
		"hexadecimal without 0x":       {vni + `"1f-2f"`, `fabric.vni.pool: 1f-2f is not a range of tags`},
		"a tag twice":                  {vni + `"20-30,25-40"`, `fabric.vni.pool: 25 is there twice; write each tag once`},
		"a list that never ends":       {vni + `"` + strings.Repeat("2,", 600) + `"`, `bytes long; at most 1024 are allowed`},
		"a list for a text":            {vni + `["2-9"]`, `test.toml:2: fabric.vni.pool: not a text in quotes`},
		"a table for a text":           {vni + `{}`, `test.toml:2: fabric.vni.pool: not a text in quotes`},
		"a section for a text":         {"[fabric.vni.pool]", `test.toml:1: fabric.vni.pool: not a text in quotes`},
		"five VNIs for each job":       {"fabric.vni.per_job = 5", `fabric.vni.per_job: 5 is not allowed; use 0 to 4`},
		"fewer than none":              {"fabric.vni.per_job = -1", `fabric.vni.per_job: -1 is not allowed; use 0 to 4`},
		"an unknown class":             {`fabric.vni.classes = ["fast"]`, `fabric.vni.classes: fast is not allowed; use "dedicated" or "low-latency" or "bulk" or "best-effort"`},
		"no class":                     {`fabric.vni.classes = []`, `fabric.vni.classes: the list is empty; name at least one`},
		"a class twice":                {`fabric.vni.classes = ["bulk", "bulk"]`, `fabric.vni.classes: bulk is there twice`},
		"a library elsewhere":          {`fabric.vni.libcxi = "lib/libcxi.so"`, `fabric.vni.libcxi: lib/libcxi.so is not a plain absolute path`},
		"no library":                   {`fabric.vni.libcxi = ""`, `fabric.vni.libcxi: "" is not a library; use a name such as libcxi.so.1`},
		"a key not absolute":           {`fabric.key = "fabric.key"`, `fabric.key: fabric.key is not a plain absolute path`},
		"no key":                       {`fabric.key = ""`, `fabric.key: "" is not a plain absolute path`},
		"a ledger not absolute":        {`fabric.state = "state"`, `fabric.state: state is not a plain absolute path`},
		"a cooling time below zero":    {`fabric.cooling = -1`, `fabric.cooling: -1 is not allowed; use 0 to 86400`},
		"an unknown way out":           {`fabric.exhausted = "wait"`, `fabric.exhausted: wait is not allowed; use "fail" or "empty"`},
		"an unknown key":               {`fabric.vlan.per_job = 1`, `test.toml:1: fabric.vlan.per_job: unknown key; known here: pool`},
		"a pool of an unknown kind":    {pool("a", `kind = "guid"`), `fabric.pool.a.kind: guid is not allowed; use "vlan" or "pkey" or "vni"`},
		"a pool of no kind":            {pool("a", `pool = "2-9"`), `fabric.pool.a.kind: "" is not allowed`},
		"a pool without tags":          {pool("a", `kind = "vni"`), `fabric.pool.a.pool: has no tags; write a range`},
		"a further pool beyond":        {pool("a", "kind = \"vlan\"\npool = \"4000-4100\""), `fabric.pool.a.pool: 4000-4100 goes beyond the VLANs`},
		"a further pool with VNI 10":   {pool("a", "kind = \"vni\"\npool = \"10\""), `fabric.pool.a.pool: VNI 10 belongs to`},
		"two VLANs for each job":       {pool("a", "kind = \"vlan\"\npool = \"2-9\"\nper_job = 2"), `fabric.pool.a.per_job: 2 is not allowed; a job has one VLAN, so leave it out`},
		"five VNIs of a further pool":  {pool("a", "kind = \"vni\"\npool = \"2-9\"\nper_job = 5"), `fabric.pool.a.per_job: 5 is not allowed; use 0 to 4`},
		"a partition that is none":     {pool("a", "kind = \"vni\"\npool = \"2-9\"\npartitions = [\"a b\"]"), `fabric.pool.a.partitions: a b is not the name of a partition`},
		"a pool with a bad name":       {pool(`"a b"`, "kind = \"vni\"\npool = \"2-9\""), `fabric.pool.a b: not a name`},
		"a pool with a kind's name":    {pool("vni", "kind = \"vni\"\npool = \"2-9\""), `fabric.pool.vni: the pool [fabric.vni] has this name; use another one`},
		"a tag in two pools":           {vni + "\"11-99\"\n" + pool("a", "kind = \"vni\"\npool = \"90-200\"\npartitions = [\"x\"]"), `fabric.pool.a.pool: 90 is in fabric.vni.pool, too; keep the pools of one kind apart`},
		"a tag in two further pools":   {pool("b", "kind = \"pkey\"\npool = \"0x20-0x30\"\npartitions = [\"x\"]") + pool("a", "kind = \"pkey\"\npool = \"0x10-0x20\"\npartitions = [\"y\"]"), `fabric.pool.b.pool: 0x0020 is in fabric.pool.a.pool, too`},
		"two pools for all partitions": {vni + "\"11-99\"\n" + pool("a", "kind = \"vni\"\npool = \"100-200\""), `fabric.pool.a.partitions: is empty, and fabric.vni has the VNIs of all partitions; name the partitions`},
		"two pools for one partition":  {pool("b", "kind = \"vni\"\npool = \"20-30\"\npartitions = [\"x\"]") + pool("a", "kind = \"vni\"\npool = \"100-200\"\npartitions = [\"y\", \"x\"]"), `fabric.pool.b.partitions: the jobs of x have their VNIs from fabric.pool.a; name a partition in one pool of a kind`},
		"licences of nothing":          {`fabric.licenses = true`, `fabric.licenses: there is no pool to count; set the pool of fabric.vlan, fabric.pkey or fabric.vni, or write false`},
		"licences that nobody adds":    {"[fabric]\nlicenses = true\nvni.pool = \"2-9\"", `fabric.licenses: the shipped Lua scripts add licences to jobs, and slurm.resources = "user" says that none is loaded`},
		"licences of further pools":    {"fabric.licenses = true\n" + pool("a", "kind = \"vni\"\npool = \"2-9\""), `fabric.licenses: Slurm cannot count the pools of [fabric.pool] (a)`},
		"a partitions file elsewhere":  {pkey + `partitions_file = "partitions.conf"`, `fabric.pkey.partitions_file: partitions.conf is not a plain absolute path`},
		"a pid file elsewhere":         {pkey + `opensm_pid_file = "opensm.pid"`, `fabric.pkey.opensm_pid_file: opensm.pid is not a plain absolute path`},
		"a pid file alone":             {pkey + `opensm_pid_file = "/run/o.pid"`, `fabric.pkey.opensm_pid_file: has no meaning without fabric.pkey.partitions_file`},
		"a command without program":    {pkey + `opensm_command = ["", "x"]`, `fabric.pkey.opensm_command: "" is no program`},
		"a command with a line break":  {pkey + `opensm_command = ["ssh", "a\nb"]`, `fabric.pkey.opensm_command: "a\nb" has a control`},
		"UFM in clear text":            {pkey + "ufm = \"http://ufm\"\nufm_token_file = \"/t\"", `fabric.pkey.ufm: http://ufm is not a plain https address; write it such as https://`},
		"UFM without token":            {pkey + `ufm = "https://ufm"`, `fabric.pkey.ufm_token_file: "" names no file; name the file with the token for https://ufm`},
		"UFM's token elsewhere":        {pkey + "ufm = \"https://ufm\"\nufm_token_file = \"t\"", `fabric.pkey.ufm_token_file: t is not a plain absolute path`},
		"a token for no UFM":           {pkey + `ufm_token_file = "/t"`, `fabric.pkey.ufm: is empty, and its token or certificate file is set`},
		"UFM and OpenSM":               {pkey + "ufm = \"https://ufm\"\nufm_token_file = \"/t\"\npartitions_file = \"/p\"", `fabric.pkey.ufm: OpenSM is named, too, and a fabric has one subnet manager`},
		"a manager in clear text":      {coll + "url = \"ftp://fm\"\ntoken_file = \"/t\"\naddrs_per_job = 1", `fabric.collectives.url: ftp://fm is not a plain https address`},
		"a manager with a password":    {coll + "url = \"https://u:p@fm\"\ntoken_file = \"/t\"\naddrs_per_job = 1", `fabric.collectives.url: https://u:p@fm is not a plain https address`},
		"a manager without host":       {coll + "url = \"https://:80\"\ntoken_file = \"/t\"\naddrs_per_job = 1", `is not a plain https address`},
		"a manager with a query":       {coll + "url = \"https://fm?a=b\"\ntoken_file = \"/t\"\naddrs_per_job = 1", `is not a plain https address`},
		"a manager with dots":          {coll + "url = \"https://fm/a/../b\"\ntoken_file = \"/t\"\naddrs_per_job = 1", `is not a plain https address`},
		"a manager without token":      {coll + "url = \"https://fm\"\naddrs_per_job = 1", `fabric.collectives.token_file: "" names no file`},
		"certificates elsewhere":       {coll + "url = \"https://fm\"\ntoken_file = \"/t\"\nca_file = \"ca\"\naddrs_per_job = 1", `fabric.collectives.ca_file: ca is not a plain absolute path`},
		"collectives of no address":    {coll + "url = \"https://fm\"\ntoken_file = \"/t\"", `fabric.collectives.addrs_per_job: 0 gives jobs no multicast address`},
		"a request that never ends":    {coll + "timeout = 61", `fabric.collectives.timeout: 61 is not allowed; use 1 to 60`},
		"collectives of no node":       {coll + "min_nodes = 0", `fabric.collectives.min_nodes: 0 is not allowed; use 1 to 65535`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("test.toml", []byte(tt.text))
			if err == nil || !strings.HasPrefix(err.Error(), "test.toml:") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one of test.toml with %q", err, tt.want)
			}
		})
	}
}
