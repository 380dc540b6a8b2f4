package vmlaunch

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// The firmware is looked for only if the image needs it, and the image only if nobody has
// said what it needs.
func TestFindFirmware(t *testing.T) {
	code := filepath.Join(t.TempDir(), "CODE.fd")
	if err := os.WriteFile(code, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	has, none := config.QEMU{UEFICode: code, UEFIVars: code}, config.QEMU{UEFICode: "/none/CODE.fd", UEFIVars: "/none/VARS.fd"}
	tests := map[string]struct {
		wanted  config.Firmware
		node    config.QEMU
		want    emulator.UEFI
		wantErr string
	}{
		"BIOS, which is always there": {config.FirmwareBIOS, none, emulator.UEFI{}, ""},
		"UEFI":                        {config.FirmwareUEFI, has, emulator.UEFI{Code: code, Vars: code}, ""},
		"UEFI, which the node has not": {config.FirmwareUEFI, none, emulator.UEFI{},
			"image /none/disk.raw boots by UEFI, and this node has no UEFI firmware: there is no /none/CODE.fd; ask the administrator to install it (Debian: ovmf; RHEL: edk2-ovmf)"},
		"UEFI, which the image needs": {config.FirmwareAuto, has, emulator.UEFI{Code: code, Vars: code}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan.Plan{Image: "/none/disk.raw", Firmware: tt.wanted, QEMU: tt.node, Owner: owner.Nobody}
			got, err := findFirmware(p, slog.New(slog.DiscardHandler), images.Info{Firmware: config.FirmwareUEFI})
			if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && !strings.HasPrefix(err.Error(), tt.wantErr) {
				t.Errorf("%+v, %v; want %+v, %q", got, err, tt.want, tt.wantErr)
			}
		})
	}
}
