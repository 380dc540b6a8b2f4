package cxi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

func TestNewService(t *testing.T) {
	job := JobOf(fabric.Reservation{
		Job: journal.ID{Job: 7}, UID: 1001,
		Grants: []fabric.Grant{{Kind: fabric.VLAN, Tags: []fabric.Tag{2000}}, {Kind: fabric.VNI, Tags: []fabric.Tag{1026, 1027}}},
	}, 2)
	got, err := newService(job, Amounts{PTE: 100})
	if err != nil {
		t.Fatal(err)
	}
	want := Service{
		Enabled: true,
		Members: []Member{{UID, 1001}},
		VNIs:    []fabric.Tag{1026, 1027},
		Classes: []fabric.Class{fabric.BestEffort, fabric.LowLatency},
		Limits:  &Limits{PTE: {12, 100}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("service differs (-want +got):\n%s", diff)
	}
	job.Classes = []fabric.Class{fabric.Dedicated}
	if got, err := newService(job, Amounts{}); err != nil || !cmp.Equal(got.Classes, job.Classes) {
		t.Errorf("classes of a job that names its own = %q, %v", got.Classes, err)
	}
}

func TestServicesThatNoJobGets(t *testing.T) {
	tests := map[string]struct {
		vnis    []fabric.Tag
		classes []fabric.Class
		want    string
	}{
		"no VNI, which is all VNIs": {nil, nil, "job 7.0 has 0 VNIs: a CXI service has 1 to 4"},
		"five":                      {[]fabric.Tag{21, 22, 23, 24, 25}, nil, "job 7.0 has 5 VNIs: a CXI service has 1 to 4"},
		"VNI 0":                     {[]fabric.Tag{0}, nil, "job 7.0 has VNI 0, which no job may have"},
		"VNI 1 of everybody":        {[]fabric.Tag{1024, 1}, nil, "job 7.0 has VNI 1, which no job may have"},
		"VNI 10 of everybody":       {[]fabric.Tag{10}, nil, "job 7.0 has VNI 10, which no job may have"},
		"the same twice":            {[]fabric.Tag{1024, 1024}, nil, "job 7.0 has VNI 1024 twice"},
		"an unknown class":          {[]fabric.Tag{1024}, []fabric.Class{"first"}, `job 7.0 has the traffic class "first": there are ["dedicated" `},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := newService(Job{ID: journal.ID{Job: 7}, VNIs: tt.vnis, Classes: tt.classes}, cassini)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error = %v, want %s…", err, tt.want)
			}
		})
	}
}

func TestWhoseAServiceIs(t *testing.T) {
	job := Job{UID: 1001, VNIs: []fabric.Tag{1026, 1027}}
	mine := func(change func(*Service)) Service {
		s := uidService(1001, 1026, 1027)
		s.ID = 12
		change(&s)
		return s
	}
	tests := map[string]struct {
		service Service
		want    bool
	}{
		"the job's":              {mine(func(*Service) {}), true},
		"VNIs in another order":  {mine(func(s *Service) { s.VNIs = []fabric.Tag{1027, 1026} }), true},
		"disabled":               {mine(func(s *Service) { s.Enabled = false }), true},
		"another user's":         {mine(func(s *Service) { s.Members[0].ID = 1002 }), false},
		"a group of that number": {mine(func(s *Service) { s.Members[0].Kind = GID }), false},
		"two users'":             {mine(func(s *Service) { s.Members = append(s.Members, Member{UID, 1002}) }), false},
		"everybody's":            {mine(func(s *Service) { s.Members = nil }), false},
		"nobody's":               {mine(func(s *Service) { s.Members = []Member{} }), false},
		"fewer VNIs":             {mine(func(s *Service) { s.VNIs = s.VNIs[:1] }), false},
		"more VNIs":              {mine(func(s *Service) { s.VNIs = append(s.VNIs, 1028) }), false},
		"other VNIs":             {mine(func(s *Service) { s.VNIs = []fabric.Tag{1026, 1028} }), false},
		"all VNIs":               {mine(func(s *Service) { s.VNIs = nil }), false},
		"the system's":           {mine(func(s *Service) { s.System = true }), false},
		"the default service":    {mine(func(s *Service) { s.ID = DefaultService }), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := job.Owns(tt.service); got != tt.want {
				t.Errorf("Owns = %t, want %t", got, tt.want)
			}
		})
	}
	if (Job{UID: 1001}).Owns(uidService(1001)) {
		t.Error("a job without VNIs owns a service without VNIs")
	}
}
