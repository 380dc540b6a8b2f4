package openstack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Clusters of different labels, credentials or projects are different ones. The secret says nothing.
func TestCluster(t *testing.T) {
	const byPassword = "clouds: {slurmv: {auth: {auth_url: http://site, username: admin, password: SECRET, project_name: PROJECT}}}"
	project := func(name string) string { return strings.ReplaceAll(byPassword, "PROJECT", name) }
	tests := map[string]struct {
		label, clouds string
		same          bool
	}{
		"itself":                {"a", project("hpc"), true},
		"with another password": {"a", strings.ReplaceAll(project("hpc"), "SECRET", "other"), true},
		"with another label":    {"b", project("hpc"), false},
		"in another project":    {"a", project("lab"), false},
		"by a credential":       {"a", replayed, false},
	}
	own, err := clusterOf(t, "a", project("hpc"))
	if err != nil || strings.Contains(own, "SECRET") {
		t.Errorf("%s, %v", own, err)
	}
	for name, tt := range tests {
		if got, err := clusterOf(t, tt.label, tt.clouds); err != nil || (got == own) != tt.same {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := clusterOf(t, "a", "clouds: {}"); err == nil {
		t.Error("a cluster without credentials")
	}
}

func clusterOf(t *testing.T, label, clouds string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(path, []byte(clouds), 0o600); err != nil {
		t.Fatal(err)
	}
	return Settings{CloudsFile: path, Cloud: "slurmv", Label: label}.Cluster()
}
