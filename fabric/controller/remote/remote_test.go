package remote

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/controller"
)

func TestSet(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	site := config.Fabric{
		PKey:        config.PKeyPool{UFM: "https://ufm", UFMTokenFile: token},
		Collectives: config.Collectives{URL: "https://fm", TokenFile: token, Timeout: 5},
	}
	c := &controller.Controller{Site: site}
	if err := Set(c); err != nil || c.Subnet == nil || c.Fabric == nil {
		t.Errorf("%+v, %v: want both managers", c, err)
	}
	none := &controller.Controller{}
	if err := Set(none); err != nil || none.Subnet != nil || none.Fabric != nil {
		t.Errorf("%+v, %v: a site names no manager", none, err)
	}
	site.PKey.UFMTokenFile += ".missing"
	if err := Set(&controller.Controller{Site: site}); err == nil {
		t.Error("no error without UFM's token")
	}
}
