package cxi

// leastTLEs is the smallest pool of TLEs. The driver raises smaller requests to it
// (CASS_MIN_POOL_TLES in shs-cxi-driver's cass_core.h, reserve_rsrcs in cass_svc.c).
const leastTLEs = 8

// unknownUse is what the driver writes if it cannot tell how much of a resource a service
// uses (copy_rsrc_use in shs-cxi-driver's cass_svc.c).
const unknownUse = 0xffff

// recommended is what HPE recommends for a job: how many of each resource for each
// process, and how many at most. The figures are those of Flux's Slingshot design. Which
// processes a job will have is not known, so its cores are counted instead.
var recommended = [numResources]struct{ each, most int }{
	PTE: {6, 2048},
	TXQ: {2, 2048},
	TGQ: {1, 1024},
	EQ:  {2, 2047},
	CT:  {1, 2047},
	LE:  {16, 16384},
	TLE: {1, 2048},
	AC:  {2, 1022},
}

// limitsFor returns the limits for a job with cores cores on a card that has room for
// these amounts.
func limitsFor(cores int, room Amounts) (limits Limits) {
	for r, rule := range recommended {
		most := min(rule.most, int(room[r]))
		limits[r] = Limit{Reserved: uint16(min(rule.each*max(cores, 1), most)), Max: uint16(most)}
	}
	limits[TLE] = tleLimit(max(int(limits[TLE].Reserved), min(leastTLEs, int(room[TLE]))))
	return limits
}

// tleLimit is the limit for n TLEs. The driver demands that the maximum is what is
// reserved, and has no pools with fewer than [leastTLEs].
func tleLimit(n int) Limit {
	if n < leastTLEs {
		return Limit{} // the service shares the default service's pool
	}
	return Limit{Reserved: uint16(n), Max: uint16(n)}
}

// roomBeside returns what a card that has these amounts has for jobs, if its system
// services, such as the one of Lustre, hold what they have reserved or use more. It is
// what Slurm's switch/hpe_slingshot calls adjust_limits.
func roomBeside(has Amounts, services []Service, use map[uint32]Amounts) Amounts {
	for _, s := range services {
		if !s.System {
			continue
		}
		for r := range has {
			has[r] -= min(has[r], held(s, use[s.ID], r))
		}
	}
	return has
}

// held is how many of a resource a system service keeps from others.
func held(s Service, use Amounts, r int) uint16 {
	var reserved uint16
	if s.Limits != nil {
		reserved = s.Limits[r].Reserved
	}
	if use[r] == unknownUse {
		return reserved
	}
	return max(reserved, use[r])
}
