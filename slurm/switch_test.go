package slurm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/config"
)

func TestSwitchVNIs(t *testing.T) {
	for name, tt := range map[string]struct {
		conf Conf
		want config.TagRange
		used bool
	}{
		"no plugin":               {Conf{}, config.TagRange{}, false},
		"another plugin":          {Conf{"SwitchType": "switch/nvidia_imex", "SwitchParameters": "vnis=2-9"}, config.TagRange{}, false},
		"the plugin's default":    {Conf{"SwitchType": "switch/hpe_slingshot"}, config.TagRange{First: 1024, Last: 65535}, true},
		"a range of the site's":   {Conf{"SwitchType": "switch/hpe_slingshot", "SwitchParameters": "tcs=BEST_EFFORT,vnis=20-99,job_vni"}, config.TagRange{First: 20, Last: 99}, true},
		"a range that is no more": {Conf{"SwitchType": "switch/hpe_slingshot", "SwitchParameters": "vnis=all"}, config.TagRange{First: 1024, Last: 65535}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, used := tt.conf.SwitchVNIs(); got != tt.want || used != tt.used {
				t.Errorf("%v, used: %v", got, used)
			}
		})
	}
}

func TestSwitchConfAsksSlurmIfItMust(t *testing.T) {
	for name, tt := range map[string]struct {
		text  string
		asked bool
	}{
		"no plugin":            {"ClusterName=c\n#SwitchType=switch/hpe_slingshot\n", false},
		"the plugin":           {"ClusterName=c\nSwitchType = switch/HPE_Slingshot\n", true},
		"further on the line":  {"ClusterName=c SwitchType=switch/hpe_slingshot\n", true},
		"maybe another file's": {"ClusterName=c\n  Include more.conf\n", true},
		"no file":              {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "slurm.conf")
			if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\necho 'SwitchType = switch/hpe_slingshot'\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if tt.text == "" {
				path += ".not"
			}
			conf, err := Client{Bin: dir, Env: []string{"SLURM_CONF=" + path}}.SwitchConf(t.Context())
			if asked := conf.HasSlingshotSwitch(); err != nil || asked != tt.asked {
				t.Errorf("slurmctld was asked: %v, %v", asked, err)
			}
		})
	}
}
