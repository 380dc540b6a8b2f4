package plan

import "github.com/slurm-v/slurm-v/guest"

var (
	Allot = allot
	Torn  = torn
	Pin   = pin
)

func (p Plan) VFHosts(number int) ([]guest.Host, error) { return p.vfHosts(number) }
