package config

import (
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	tests := map[string]struct {
		text string
		want Size
	}{
		"a bare number is MiB":      {"512", 512},
		"kibibytes":                 {"2048K", 2},
		"mebibytes":                 {"7M", 7},
		"gibibytes":                 {"8G", 8192},
		"tebibytes":                 {"2T", 2 << 20},
		"a small letter":            {"8g", 8192},
		"nothing":                   {"0", 0},
		"nothing with a unit":       {"0G", 0},
		"leading zeros are decimal": {"010M", 10},
		"the largest":               {"1048576T", MaxSize},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSize(tt.text)
			if err != nil || got != tt.want {
				t.Errorf("ParseSize(%q) = %d, %v; want %d", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestParseSizeRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"an unknown unit":           {"8Q", "8Q is not a size; use a number and K, M, G or T, such as 8G"},
		"two letters":               {"8GB", "8GB is not a size"},
		"a fraction":                {"1.5G", "1.5G is not a size"},
		"part of a MiB":             {"1500K", "1500K is not a whole number of MiB"},
		"a minus":                   {"-1G", "-1G is not a size"},
		"a plus":                    {"+1G", "+1G is not a size"},
		"only a unit":               {"G", "G is not a size"},
		"empty text":                {"", `"" is not a size`},
		"a space":                   {"8 G", "8 G is not a size"},
		"hexadecimal":               {"0x10", "0x10 is not a size"},
		"more than any machine has": {"1048577T", "1048577T is too large a size; at most 1048576T can be given"},
		"an overflow of the unit":   {"9223372036854775807T", "is too large a size"},
		"an overflow of the number": {"9223372036854775808", "is too large a size"},
		"a control character":       {"8\x1b", `"8\x1b" is not a size`},
		"a long text, shortened":    {strings.Repeat("9", 200) + "x", `9"… is not a size`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSize(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseSize(%q) = %d, %v; want an error with %q", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestSizeString(t *testing.T) {
	for size, want := range map[Size]string{
		0: "0", 1: "1M", 1000: "1000M", 1024: "1G", 1536: "1536M", 3 << 20: "3T", 3<<20 + 1024: "3073G",
	} {
		if got := size.String(); got != want {
			t.Errorf("Size(%d) = %s, want %s", size, got, want)
		}
		if back, err := ParseSize(want); err != nil || back != size {
			t.Errorf("ParseSize(%s) = %d, %v; want %d", want, back, err, size)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, text := range []string{"8G", "1500K", "9223372036854775807T", "-1", "٣G"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		if size < 0 || size > MaxSize {
			t.Errorf("ParseSize(%q) = %d, out of range", text, size)
		}
		if back, err := ParseSize(size.String()); err != nil || back != size {
			t.Errorf("%q became %s, which reads as %d, %v", text, size, back, err)
		}
	})
}
