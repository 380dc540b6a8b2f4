package nodeagent

import "testing"

func TestSocketFromEnv(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		want string // "" if an error is expected
	}{
		"a first run":               {map[string]string{"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"}, "/run/n1/jobs/7.0/agent.sock"},
		"a run after a requeue":     {map[string]string{"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}, "/run/n1/jobs/7.2/agent.sock"},
		"no task of Slurm":          {map[string]string{}, ""},
		"a job that is no number":   {map[string]string{"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "../7"}, ""},
		"a count that is no number": {map[string]string{"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "/"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := SocketFromEnv(func(node string) string { return "/run/" + node }, func(name string) string { return tt.env[name] })
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}
