package fabric

import "testing"

func TestPlanCollectives(t *testing.T) {
	tests := map[string]struct{ total, system, least, sharing, want int }{
		"HPE's example":                   {4086, 11136, 64, 1, 23},
		"two jobs on each node":           {4086, 11136, 64, 2, 11},
		"rounded down once":               {10, 7, 2, 1, 2},
		"a small system":                  {4086, 64, 64, 1, 4086},
		"jobs larger than the system":     {4086, 32, 64, 1, 4086},
		"too little for each":             {10, 1000, 2, 1, 0},
		"no addresses":                    {0, 10, 2, 1, 0},
		"no nodes":                        {4086, 0, 2, 1, 0},
		"no least size":                   {4086, 10, 0, 1, 0},
		"no jobs":                         {4086, 10, 2, 0, 0},
		"a number that must be a mistake": {4086, -10, 2, 1, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := PlanCollectives(tt.total, tt.system, tt.least, tt.sharing); got != tt.want {
				t.Errorf("Plan = %d, want %d", got, tt.want)
			}
		})
	}
}
