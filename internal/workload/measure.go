package workload

import (
	"errors"
	"io"
	"net"
	"time"
)

// A Load says how much a measurement does: the same in VMs and on bare nodes.
type Load struct {
	Loops    int // of the computation
	Elements int // of each of the three arrays in memory, 8 bytes each
	Passes   int // over the arrays
	Answers  int // to short messages
	Blocks   int // of a long message, a MiB each
}

// A Sample is what one rank has measured. Rates and latency are 0 in ranks that have not
// measured them.
type Sample struct {
	Rank      int     `json:"rank"`
	VM        string  `json:"vm"`
	Checksum  uint64  `json:"checksum"`  // of the computation: the same everywhere
	Compute   float64 `json:"compute_s"` // seconds
	Memory    float64 `json:"memory_mb_s"`
	Latency   float64 `json:"latency_us"` // one way
	Bandwidth float64 `json:"bandwidth_mb_s"`
}

// Measure has all ranks compute, then stream memory, each phase at the same time. Then the
// first and the last rank exchange messages while the others wait.
func (r *Rank) Measure(load Load, env func(string) string) (Sample, error) {
	s := Sample{Rank: r.Number, VM: env("SLURMV_VM")}
	l, err := r.listen(names(env))
	if err != nil {
		return s, err
	}
	defer l.tcp.Close()
	arrays := newArrays(load.Elements)
	phases := []func() error{
		func() error { s.Checksum, s.Compute = compute(load.Loops); return nil },
		func() error { s.Memory = arrays.stream(load.Passes); return nil },
		func() error { return r.exchange(l, load, &s) },
		func() error { return nil },
	}
	for _, phase := range phases {
		if err := errors.Join(r.Barrier(), phase()); err != nil {
			return s, err
		}
	}
	return s, nil
}

// compute mixes integer and floating-point arithmetic. Each loop needs the result of the
// one before it, so no compiler can leave one out.
func compute(loops int) (checksum uint64, seconds float64) {
	begin := time.Now()
	bits, x := uint64(88172645463325252), 0.5
	for range loops {
		bits ^= bits << 13
		bits ^= bits >> 7
		bits ^= bits << 17
		x = 3.9*x*(1-x) + float64(bits&1)*1e-9
	}
	return bits ^ uint64(x*(1<<52)), time.Since(begin).Seconds()
}

// arrays are those of the STREAM triad.
type arrays struct{ a, b, c []float64 }

// newArrays writes to all pages, so that none comes into being while time is taken.
func newArrays(elements int) arrays {
	t := arrays{make([]float64, elements), make([]float64, elements), make([]float64, elements)}
	for i := range elements {
		t.a[i], t.b[i], t.c[i] = 0, float64(i), 1
	}
	return t
}

// stream returns the rate in MB/s, counted as STREAM does: two reads and a write.
func (t arrays) stream(passes int) float64 {
	begin := time.Now()
	for pass := range passes {
		scale := float64(pass)
		for i, b := range t.b {
			t.a[i] = b + scale*t.c[i]
		}
	}
	return float64(3*8*len(t.a)*passes) / time.Since(begin).Seconds() / 1e6
}

// exchange measures messages between the first and the last rank, on the first. Short
// messages are sent at once: Go switches TCP's delay off.
func (r *Rank) exchange(l *listener, load Load, s *Sample) error {
	switch {
	case r.Ranks == 1:
		return nil
	case r.Number == 0:
		conn, err := r.dial(r.Ranks - 1)
		if err != nil {
			return err
		}
		defer conn.Close()
		if s.Latency, err = latency(conn, load.Answers); err == nil {
			s.Bandwidth, err = bandwidth(conn, load.Blocks)
		}
		return err
	case r.Number == r.Ranks-1:
		conn, err := l.accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		return answer(conn, load)
	}
	return nil
}

const (
	short = 8       // bytes of a message whose latency counts
	block = 1 << 20 // bytes
)

// warmUp is how many answers are waited for before time is taken.
const warmUp = 10

func latency(conn net.Conn, answers int) (microseconds float64, err error) {
	if _, err := bounce(conn, warmUp); err != nil {
		return 0, err
	}
	took, err := bounce(conn, answers)
	return float64(took.Microseconds()) / float64(2*answers), err
}

func bounce(conn net.Conn, times int) (took time.Duration, err error) {
	message, begin := make([]byte, short), time.Now()
	for range times {
		if _, err := conn.Write(message); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// bandwidth sends blocks, and waits for a word that all have arrived.
func bandwidth(conn net.Conn, blocks int) (megabytes float64, err error) {
	message, begin := make([]byte, block), time.Now()
	for range blocks {
		if _, err := conn.Write(message); err != nil {
			return 0, err
		}
	}
	_, err = io.ReadFull(conn, message[:short])
	return float64(blocks*block) / time.Since(begin).Seconds() / 1e6, err
}

// answer is the other rank's part.
func answer(conn net.Conn, load Load) error {
	message := make([]byte, block)
	for range warmUp + load.Answers {
		if _, err := io.ReadFull(conn, message[:short]); err != nil {
			return err
		}
		if _, err := conn.Write(message[:short]); err != nil {
			return err
		}
	}
	for range load.Blocks {
		if _, err := io.ReadFull(conn, message); err != nil {
			return err
		}
	}
	_, err := conn.Write(message[:short])
	return err
}
