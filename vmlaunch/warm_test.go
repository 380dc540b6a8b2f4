package vmlaunch

import (
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

// Templates fit VMs whose guests are to know the same of their CPUs, and all of these.
func TestPlannedShapesOfPinnedVMs(t *testing.T) {
	const kvm, tcg = config.AccelKVM, config.AccelTCG
	cores, threads := plantest.CPUs(1, 4), plantest.CPUs(2, 2)
	tests := map[string]struct {
		accel     config.Accel
		cpus      []plan.CPU
		model     string
		dedicated bool
		threads   int
	}{
		"not pinned":                               {accel: kvm, threads: 1},
		"pinned to cores":                          {accel: kvm, cpus: cores, dedicated: true, threads: 1},
		"pinned to whole cores":                    {accel: kvm, cpus: threads, dedicated: true, threads: 2},
		"on a node of which the job has not all":   {accel: kvm, cpus: plantest.CPUs(2, 8), dedicated: true, threads: 2},
		"with a CPU model of the site's":           {accel: kvm, cpus: threads, model: "EPYC", threads: 2},
		"emulated and pinned":                      {accel: tcg, cpus: cores, threads: 1},
		"emulated and not pinned":                  {accel: tcg, threads: 1},
		"emulated, with hyper-threads of the node": {accel: tcg, cpus: threads, threads: 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, hw := config.Default(), plan.Hardware{Accel: tt.accel, NUMA: -1, CPUs: tt.cpus}
			cfg.QEMU.CPU = tt.model
			if tt.cpus == nil {
				hw.Unpinned = unconfined
			}
			s := plannedShape(plantest.New(t, cfg, plantest.Job(), hw))
			if s.Dedicated != tt.dedicated || s.Threads != tt.threads {
				t.Errorf("dedicated %v, %d threads, want %v, %d", s.Dedicated, s.Threads, tt.dedicated, tt.threads)
			}
		})
	}
}

// An emulated VM that shares memory can have a second vCPU. So can its template's, which fits
// VMs that share none, too.
func TestSharedMemoryDoesNotChangeTheShape(t *testing.T) {
	job, hw := plantest.Job(), plan.Hardware{Accel: config.AccelTCG, NUMA: -1, Unpinned: unconfined}
	job.Spec.VCPUs = 1
	without := plannedShape(plantest.New(t, config.Default(), job, hw))
	job.Spec.IVShmem = jobspec.IVShmem{Devices: 1, SizeMiB: 16}
	if with := plannedShape(plantest.New(t, config.Default(), job, hw)); with.Key() != without.Key() {
		t.Errorf("with shared memory %+v, without %+v", with, without)
	}
}

// Users hear why the template that root has made does not fit, if they have none of their own.
func TestWhyTheTemplateForAllDoesNotFit(t *testing.T) {
	const path = "/images/x.qcow2"
	shape := template.Shape{Named: path, Image: []images.FileIdentity{{Path: path}}, VCPUs: 2, Threads: 1}
	site := shape
	site.Threads = 2
	tests := map[string]struct{ own, want string }{
		"no template of the user's own": {"", "it has 2 hyper-threads per core, and not 1"},
		"one that does not fit either":  {"it has a disk of another size", "it has a disk of another size"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := aJob(t, stateIn(t.TempDir()), 42, jobspec.IVShmem{})
			v.Plan.Catalogue = true
			draft, err := v.store.templates.Draft(t.Context(), template.Site, site, "1.0", func(string) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			if err := draft.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := draft.Close(); err != nil {
				t.Fatal(err)
			}
			w := &warmer{VMs: v}
			err = w.newTemplate(t.Context(), shape, images.Info{}, &template.NoneError{Reason: tt.own})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q in it", err, tt.want)
			}
		})
	}
}
