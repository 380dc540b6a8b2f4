package cxi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

func TestEnvironment(t *testing.T) {
	job := Job{ID: journal.ID{Job: 7}, UID: 1001, VNIs: []fabric.Tag{4035, 4034}}
	on := func(card string, id uint32, classes ...fabric.Class) Placed {
		s := uidService(1001, 4034, 4035)
		s.ID, s.Classes = id, classes
		return Placed{card, s}
	}
	usual := []fabric.Class{fabric.LowLatency, fabric.BestEffort}
	tests := map[string]struct {
		services []Placed
		want     string
	}{
		"four cards": {
			[]Placed{on("cxi0", 11, usual...), on("cxi1", 11, usual...), on("cxi2", 12, usual...), on("cxi3", 11, usual...)},
			"SLINGSHOT_VNIS=4035,4034 SLINGSHOT_DEVICES=cxi0,cxi1,cxi2,cxi3 SLINGSHOT_SVC_IDS=11,11,12,11 SLINGSHOT_TCS=0x0a",
		},
		"cards by their numbers": {
			[]Placed{on("cxi10", 3, usual...), on("cxi2", 4, usual...)},
			"SLINGSHOT_VNIS=4035,4034 SLINGSHOT_DEVICES=cxi2,cxi10 SLINGSHOT_SVC_IDS=4,3 SLINGSHOT_TCS=0x0a",
		},
		"the classes that all cards allow": {
			[]Placed{on("cxi0", 3, fabric.Dedicated, fabric.LowLatency), on("cxi1", 3, fabric.Dedicated, fabric.Bulk)},
			"SLINGSHOT_VNIS=4035,4034 SLINGSHOT_DEVICES=cxi0,cxi1 SLINGSHOT_SVC_IDS=3,3 SLINGSHOT_TCS=0x01",
		},
		"no restriction of classes": {
			[]Placed{on("cxi0", 3)},
			"SLINGSHOT_VNIS=4035,4034 SLINGSHOT_DEVICES=cxi0 SLINGSHOT_SVC_IDS=3 SLINGSHOT_TCS=0x0f",
		},
		"one service of a card": {
			[]Placed{on("cxi0", 3, usual...), on("cxi0", 4, usual...)},
			"SLINGSHOT_VNIS=4035,4034 SLINGSHOT_DEVICES=cxi0 SLINGSHOT_SVC_IDS=3 SLINGSHOT_TCS=0x0a",
		},
		"services of others only": {[]Placed{{"cxi0", uidService(1001, 4036)}, {"cxi0", systemService(1001, 4034, 4035)}}, ""},
		"none":                    {nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Environment(job, tt.services)
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("environment differs (-want +got):\n%s", diff)
			}
			for _, v := range got {
				if name, _, _ := strings.Cut(v, "="); !slices.Contains(Variables, name) {
					t.Errorf("Variables has no %s", name)
				}
			}
		})
	}
}

func TestStray(t *testing.T) {
	pools := []fabric.Pool{
		{Kind: fabric.VNI, Tags: []fabric.Range{{First: 1024, Last: 1100}}},
		{Kind: fabric.VLAN, Tags: []fabric.Range{{First: 2000, Last: 2100}}},
	}
	live := []Job{{UID: 1001, VNIs: []fabric.Tag{1026}}}
	tests := map[string]struct {
		service Service
		want    bool
	}{
		"a live job's":                   {uidService(1001, 1026), false},
		"another user's with its VNI":    {uidService(1002, 1026), true},
		"a dead job's":                   {uidService(1001, 1027), true},
		"one VNI of the pool":            {uidService(1001, 5, 1027), true},
		"not of the pool":                {uidService(1001, 1101), false},
		"of a pool of VLANs":             {uidService(1001, 2050), false},
		"the system's":                   {systemService(1001, 1027), false},
		"all VNIs":                       {Service{ID: 7}, false},
		"the default one, made anywhere": {Service{ID: 1, VNIs: []fabric.Tag{1027}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := len(Stray([]Placed{{"cxi0", tt.service}}, pools, live)) == 1; got != tt.want {
				t.Errorf("stray = %t, want %t", got, tt.want)
			}
		})
	}
}

func TestAnEnabledDefaultServiceIsToldOf(t *testing.T) {
	lib, _ := aNode(t, "CARDS=2")
	if got := Warnings(listed(t, lib)); got != nil {
		t.Errorf("with disabled ones: %q", got)
	}
	lib, _ = aNode(t, "CARDS=2", "DEFAULT=1")
	want := "the default CXI service is enabled on cxi0 and cxi1, so jobs without VNIs of their own hear each other: disable it (cxi_service disable -d cxi0 -s 1)"
	if diff := cmp.Diff([]string{want}, Warnings(listed(t, lib))); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

func TestSettingsCanBeVariables(t *testing.T) {
	t.Setenv("FAKECXI_CARDS", "3")
	lib, _ := aNode(t, "CARDS=2")
	if n := len(devices(t, lib)); n != 3 {
		t.Errorf("%d cards", n)
	}
}

func TestTable(t *testing.T) {
	lib, _ := aNode(t, "FIRST_IDS=11,11,12,11")
	made(t, lib, job4217)
	seed(t, lib, 3, Service{System: true, VNIs: []fabric.Tag{30, 31}, Members: []Member{{GID, 5}}})
	rows := Rows(listed(t, lib))
	tests := map[string]struct {
		most bool
		want string
	}{
		"reserved": {false, `
CARDS       ID  KIND     STATE     MEMBERS   VNIS   CLASSES                  PTEs  TXQs  TGQs  EQs  CTs  LEs   TLEs  ACs
cxi[0-3]    1   default  disabled  -         1,10   -                        0     0     0     0    0    0     512   0
cxi[0-1,3]  11  user     enabled   uid:1001  1027   low-latency,best-effort  576   192   96    192  96   1536  96    192
cxi2        12  user     enabled   uid:1001  1027   low-latency,best-effort  576   192   96    192  96   1536  96    192
cxi3        12  system   enabled   gid:5     30,31  -                        -     -     -     -    -    -     -     -
`},
		"at most": {true, `
CARDS       ID  KIND     STATE     MEMBERS   VNIS   CLASSES                  PTEs  TXQs  TGQs  EQs   CTs   LEs    TLEs  ACs
cxi[0-3]    1   default  disabled  -         1,10   -                        2048  1024  512   2047  2047  16384  512   1022
cxi[0-1,3]  11  user     enabled   uid:1001  1027   low-latency,best-effort  2048  1024  512   2047  2047  16384  96    1022
cxi2        12  user     enabled   uid:1001  1027   low-latency,best-effort  2048  1024  512   2047  2047  16384  96    1022
cxi3        12  system   enabled   gid:5     30,31  -                        -     -     -     -     -     -      -     -
`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := WriteTable(&out, rows, tt.most); err != nil {
				t.Fatal(err)
			}
			want := strings.TrimPrefix(tt.want, "\n")
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("table differs (-want +got):\n%s", diff)
			}
		})
	}
	text, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"cards":["cxi0","cxi1","cxi3"],"id":11,"system":false,"enabled":true,"members":[{"kind":"uid","id":1001}],"vnis":[1027],` +
		`"classes":["low-latency","best-effort"],"limits":{"ACs":{"reserved":192,"max":1022},`; !strings.Contains(string(text), want) {
		t.Errorf("JSON has no %s:\n%s", want, text)
	}
	var back []Row
	if err := json.Unmarshal(text, &back); err != nil || !cmp.Equal(rows, back) {
		t.Errorf("JSON does not come back: %v\n%s", err, cmp.Diff(rows, back))
	}
	if err := json.Unmarshal([]byte(`{"XYZs":{"max":1}}`), new(Limits)); err == nil {
		t.Error("an unknown resource was read")
	}
}

func TestCardSets(t *testing.T) {
	tests := map[string]string{
		"cxi0":                "cxi0",
		"cxi0 cxi1":           "cxi[0-1]",
		"cxi10 cxi2 cxi3":     "cxi[2-3,10]",
		"cxi0 hsn0":           "cxi0,hsn0",
		"cxi01 cxi2":          "cxi01,cxi2",
		"cxi0 cxi2 cxi4 cxi5": "cxi[0,2,4-5]",
	}
	for names, want := range tests {
		if got := cardSet(strings.Fields(names)); got != want {
			t.Errorf("%s: %s, want %s", names, got, want)
		}
	}
}
