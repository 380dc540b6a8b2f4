package stats

import "testing"

func TestMedian(t *testing.T) {
	tests := map[string]struct {
		values []float64
		want   float64
	}{
		"of an odd number":  {[]float64{9, 1, 4}, 4},
		"of an even number": {[]float64{9, 1, 4, 2}, 3},
		"of one":            {[]float64{7}, 7},
		"of none":           {nil, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Median(tt.values); got != tt.want {
				t.Errorf("median of %v is %v, want %v", tt.values, got, tt.want)
			}
		})
	}
}

func TestMedianLeavesTheOrder(t *testing.T) {
	values := []float64{3, 1, 2}
	Median(values)
	if values[0] != 3 {
		t.Errorf("the values are %v now", values)
	}
}
