package cxi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everything is a card that has enough of all resources.
var everything = Amounts{65535, 65535, 65535, 65535, 65535, 65535, 65535, 65535}

func TestLimits(t *testing.T) {
	tests := map[string]struct {
		cores int
		room  Amounts
		want  Limits
	}{
		"96 cores, as in the table of HPE": {96, everything, Limits{
			PTE: {576, 2048}, TXQ: {192, 2048}, TGQ: {96, 1024}, EQ: {192, 2047},
			CT: {96, 2047}, LE: {1536, 16384}, TLE: {96, 96}, AC: {192, 1022},
		}},
		"512 cores reach the maxima": {512, everything, Limits{
			PTE: {2048, 2048}, TXQ: {1024, 2048}, TGQ: {512, 1024}, EQ: {1024, 2047},
			CT: {512, 2047}, LE: {8192, 16384}, TLE: {512, 512}, AC: {1022, 1022},
		}},
		"the maxima are not beyond the card's": {96, cassini, Limits{
			PTE: {576, 2048}, TXQ: {192, 1024}, TGQ: {96, 512}, EQ: {192, 2047},
			CT: {96, 2047}, LE: {1536, 16384}, TLE: {96, 96}, AC: {192, 1022},
		}},
		"one core has the smallest pool of TLEs": {1, cassini, Limits{
			PTE: {6, 2048}, TXQ: {2, 1024}, TGQ: {1, 512}, EQ: {2, 2047},
			CT: {1, 2047}, LE: {16, 16384}, TLE: {8, 8}, AC: {2, 1022},
		}},
		"a card with few TLEs reserves none": {96, Amounts{TLE: 7, TXQ: 5}, Limits{TXQ: {5, 5}}},
		"a card with TLEs for one pool":      {96, Amounts{TLE: 8}, Limits{TLE: {8, 8}}},
		"no cores count as one":              {0, Amounts{PTE: 100}, Limits{PTE: {6, 100}}},
		"a huge node does not overflow":      {1 << 20, Amounts{LE: 16384}, Limits{LE: {16384, 16384}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, limitsFor(tt.cores, tt.room)); diff != "" {
				t.Errorf("limits differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRoomBesideTheSystem(t *testing.T) {
	lustre := func(id uint32) Service {
		return Service{ID: id, System: true, Limits: &Limits{TXQ: {100, 200}, AC: {10, 20}}}
	}
	tests := map[string]struct {
		services []Service
		use      map[uint32]Amounts
		want     Amounts
	}{
		"nothing but the card": {want: Amounts{TXQ: 1000, AC: 1000}},
		"what is reserved":     {[]Service{lustre(2)}, map[uint32]Amounts{2: {TXQ: 50}}, Amounts{TXQ: 900, AC: 990}},
		"what is used, if it is more": {[]Service{lustre(2)}, map[uint32]Amounts{2: {TXQ: 150}},
			Amounts{TXQ: 850, AC: 990}},
		"two of the system":             {[]Service{lustre(2), lustre(3)}, nil, Amounts{TXQ: 800, AC: 980}},
		"a use that nobody knows":       {[]Service{lustre(2)}, map[uint32]Amounts{2: {TXQ: 0xffff}}, Amounts{TXQ: 900, AC: 990}},
		"use without limits":            {[]Service{{ID: 2, System: true}}, map[uint32]Amounts{2: {TXQ: 40}}, Amounts{TXQ: 960, AC: 1000}},
		"more than there is":            {[]Service{lustre(2)}, map[uint32]Amounts{2: {AC: 2000}}, Amounts{TXQ: 900}},
		"services of jobs do not count": {[]Service{{ID: 5, Limits: &Limits{TXQ: {100, 200}}}}, map[uint32]Amounts{5: {TXQ: 300}}, Amounts{TXQ: 1000, AC: 1000}},
		"nor does the default service":  {[]Service{{ID: 1, Limits: &Limits{TXQ: {100, 200}}}}, nil, Amounts{TXQ: 1000, AC: 1000}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, roomBeside(Amounts{TXQ: 1000, AC: 1000}, tt.services, tt.use)); diff != "" {
				t.Errorf("room differs (-want +got):\n%s", diff)
			}
		})
	}
}
