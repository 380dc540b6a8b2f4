package emulator

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
)

// plain describes firmware as Debian's ovmf does.
const plain = `{"interface-types": ["uefi"], "mapping": {"device": "flash",
	"executable": {"filename": "/f/CODE.fd", "format": "raw"}, "nvram-template": {"filename": "/f/VARS.fd", "format": "raw"}},
	"targets": [{"architecture": "x86_64", "machines": ["pc-i440fx-*", "pc-q35-*"]}], "features": ["acpi-s3", "verbose-dynamic"], "tags": []}`

func TestFindUEFI(t *testing.T) {
	const etc, usr = "etc/qemu/firmware/", "usr/share/qemu/firmware/"
	other := strings.ReplaceAll(plain, "/f/", "/g/")
	changed := func(old, to string) map[string]string {
		if !strings.Contains(plain, old) {
			t.Fatalf("%s is not in %s", old, plain)
		}
		return map[string]string{usr + "60-x.json": strings.Replace(plain, old, to, 1)}
	}
	has, none := UEFI{"/f/CODE.fd", "/f/VARS.fd"}, UEFI{}
	tests := map[string]struct {
		files map[string]string
		site  config.QEMU
		want  UEFI
	}{
		"that a package describes":         {map[string]string{usr + "60-x.json": plain}, config.QEMU{}, has},
		"of the lowest number":             {map[string]string{usr + "60-x.json": other, usr + "50-x.json": plain}, config.QEMU{}, has},
		"of the administrator's":           {map[string]string{usr + "50-x.json": other, etc + "10-x.json": plain}, config.QEMU{}, has},
		"in place of a package's":          {map[string]string{usr + "50-x.json": other, etc + "50-x.json": plain}, config.QEMU{}, has},
		"after one that is hidden":         {map[string]string{usr + "50-x.json": other, etc + "50-x.json": "", usr + "60-x.json": plain}, config.QEMU{}, has},
		"of the configuration":             {map[string]string{usr + "60-x.json": other}, config.QEMU{UEFICode: "/f/CODE.fd", UEFIVars: "/f/VARS.fd"}, has},
		"of the configuration, not there":  {map[string]string{usr + "60-x.json": plain}, config.QEMU{UEFICode: "/f/X.fd", UEFIVars: "/f/VARS.fd"}, none},
		"that is described and not there":  {changed("/f/VARS.fd", "/f/X.fd"), config.QEMU{}, none},
		"for another processor":            {changed("x86_64", "aarch64"), config.QEMU{}, none},
		"for another machine":              {changed("pc-q35-", "microvm-"), config.QEMU{}, none},
		"that is a BIOS":                   {changed(`["uefi"]`, `["bios"]`), config.QEMU{}, none},
		"in memory instead of flash":       {changed(`"flash"`, `"memory"`), config.QEMU{}, none},
		"that needs SMM":                   {changed("acpi-s3", "requires-smm"), config.QEMU{}, none},
		"that checks signatures":           {changed("acpi-s3", "enrolled-keys"), config.QEMU{}, none},
		"in qcow2":                         {changed(`"/f/VARS.fd", "format": "raw"`, `"/f/VARS.fd", "format": "qcow2"`), config.QEMU{}, none},
		"without variables":                {changed(`"nvram-template"`, `"x"`), config.QEMU{}, none},
		"where there is none":              {nil, config.QEMU{}, none},
		"that another program describes":   {map[string]string{usr + "60-x.json": "[]"}, config.QEMU{}, none},
		"in a file that is no description": {map[string]string{usr + "60-x.conf": plain}, config.QEMU{}, none},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, path := range []string{"f/CODE.fd", "f/VARS.fd", "g/CODE.fd", "g/VARS.fd"} {
				put(t, root, path, "firmware")
			}
			for path, text := range tt.files {
				put(t, root, path, text)
			}
			got, err := FindUEFI(root, tt.site)
			if got != tt.want || errors.Is(err, ErrNoUEFI) != (tt.want == none) {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func put(t *testing.T, root, path, text string) {
	t.Helper()
	file := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
