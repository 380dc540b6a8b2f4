package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Rate is a bandwidth in Mb/s, the unit of drivers. Unlike sizes, rates are decimal, as
// link speeds are: a g is 1000 Mb/s.
type Rate uint32

// MaxRate bounds every Rate (10 Tb/s), far above any card, so that sums over the
// VFs of a node never overflow.
const MaxRate Rate = 10_000_000

const rateForm = "use a whole number of Mb/s, such as 500, or a number and g, such as 10g"

// ParseRate reads a rate: a whole number of Mb/s, with or without m, or a number
// and g (1000 Mb/s), either case. The error is a phrase that begins with the text.
func ParseRate(text string) (Rate, error) {
	number, unit := text, int64(1)
	switch lower := strings.ToLower(text); {
	case strings.HasSuffix(lower, "g"):
		number, unit = text[:len(text)-1], 1000
	case strings.HasSuffix(lower, "m"):
		number = text[:len(text)-1]
	}
	n, err := parseDigits(number)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > int64(MaxRate)/unit:
		return 0, fmt.Errorf("%s is too high a rate; at most %s can be given", Quote(text), MaxRate)
	case err != nil:
		return 0, fmt.Errorf("%s is not a rate; %s", Quote(text), rateForm)
	}
	return Rate(n * unit), nil
}

// String returns the shortest text that ParseRate reads back, with a unit unless
// it is 0.
func (r Rate) String() string {
	switch {
	case r == 0:
		return "0"
	case r%1000 == 0:
		return strconv.FormatUint(uint64(r/1000), 10) + "g"
	}
	return strconv.FormatUint(uint64(r), 10) + "m"
}

// UnmarshalText lets a Rate stand in the configuration file.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}
