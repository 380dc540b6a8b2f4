package hypervisor

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/filetest"
)

func TestChooseAccel(t *testing.T) {
	const vmx, plain = "processor\t: 0\nflags\t\t: fpu vmx sse\n\nprocessor\t: 1\n", "processor\t: 0\nflags\t\t: fpu sse\n"
	tests := map[string]struct {
		device  bool
		cpuinfo string
		wish    config.Accel
		want    config.Accel
		wantErr error
	}{
		"takes KVM where it works":                             {device: true, cpuinfo: vmx, wish: config.AccelAuto, want: config.AccelKVM},
		"takes TCG without the device":                         {cpuinfo: vmx, wish: config.AccelAuto, want: config.AccelTCG},
		"takes TCG where the device is there but not the flag": {device: true, cpuinfo: plain, wish: config.AccelAuto, want: config.AccelTCG},
		"takes TCG where the site wants it":                    {device: true, cpuinfo: vmx, wish: config.AccelTCG, want: config.AccelTCG},
		"refuses KVM where it does not work":                   {device: true, cpuinfo: plain, wish: config.AccelKVM, wantErr: errNoKVM},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			filetest.Write(t, filepath.Join(root, "proc/cpuinfo"), tt.cpuinfo)
			if tt.device {
				filetest.Write(t, filepath.Join(root, "dev/kvm"), "")
			}
			got, err := ChooseAccel(tt.wish, root)
			if !errors.Is(err, tt.wantErr) {
				t.Fatalf("error = %v, want %v", err, tt.wantErr)
			}
			if got != tt.want {
				t.Errorf("accel = %q, want %q", got, tt.want)
			}
		})
	}
}
