package config

import (
	"strings"
	"testing"
)

func TestParseRate(t *testing.T) {
	tests := map[string]struct {
		text string
		want Rate
	}{
		"a bare number is Mb/s":     {"500", 500},
		"the same with its unit":    {"500m", 500},
		"a g is 1000 and not 1024":  {"10g", 10000},
		"a capital letter":          {"40G", 40000},
		"nothing":                   {"0", 0},
		"nothing with a unit":       {"0g", 0},
		"leading zeros are decimal": {"010", 10},
		"the highest":               {"10000g", MaxRate},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRate(tt.text)
			if err != nil || got != tt.want {
				t.Errorf("ParseRate(%q) = %d, %v; want %d", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestParseRateRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a word":                 {"fast", "fast is not a rate; use a whole number of Mb/s, such as 500, or a number and g, such as 10g"},
		"an unknown unit":        {"1T", "1T is not a rate"},
		"two letters":            {"10gb", "10gb is not a rate"},
		"bits per second":        {"10Gbit", "10Gbit is not a rate"},
		"a fraction":             {"2.5g", "2.5g is not a rate"},
		"a minus":                {"-1", "-1 is not a rate"},
		"a plus":                 {"+1", "+1 is not a rate"},
		"only a unit":            {"g", "g is not a rate"},
		"empty text":             {"", `"" is not a rate`},
		"a space":                {"10 g", "10 g is not a rate"},
		"other digits":           {"٣g", "٣g is not a rate"},
		"more than any link has": {"10001g", "10001g is too high a rate; at most 10000g can be given"},
		"an overflow":            {"9223372036854775808", "is too high a rate"},
		"a control character":    {"8\x1b", `"8\x1b" is not a rate`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRate(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseRate(%q) = %d, %v; want an error with %q", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestRateString(t *testing.T) {
	for rate, want := range map[Rate]string{0: "0", 1: "1m", 999: "999m", 1000: "1g", 2500: "2500m", 100_000: "100g"} {
		if got := rate.String(); got != want {
			t.Errorf("Rate(%d) = %s, want %s", rate, got, want)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"10g", "500m", "500", "10000001", "-1", "٣g", "K"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := ParseRate(text)
		if err != nil {
			return
		}
		if rate > MaxRate {
			t.Errorf("ParseRate(%q) = %d, out of range", text, rate)
		}
		if back, err := ParseRate(rate.String()); err != nil || back != rate {
			t.Errorf("%q became %s, which reads as %d, %v", text, rate, back, err)
		}
	})
}
