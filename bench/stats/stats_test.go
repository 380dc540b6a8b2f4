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

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100) // 100 to 1
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	tests := map[string]struct {
		values  []float64
		percent float64
		want    float64
	}{
		"the 99th of a hundred":       {hundred, 99, 99},
		"the 50th of a hundred":       {hundred, 50, 50},
		"the 99th of few is the last": {[]float64{9, 1, 4}, 99, 9},
		"the 0th is the first":        {[]float64{9, 1, 4}, 0, 1},
		"that of one is the value":    {[]float64{7}, 50, 7},
		"that of none is nothing":     {nil, 99, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Percentile(tt.values, tt.percent); got != tt.want {
				t.Errorf("percentile %v is %v, want %v", tt.percent, got, tt.want)
			}
		})
	}
}
