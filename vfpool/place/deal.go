package place

import "slices"

// deal turns counts, by PF and class, into an answer: the first requests of a class get
// the lowest of the PFs that have requests of that class.
func (p *problem) deal(counts [][]int) []int {
	answer, dealt := make([]int, len(p.classOf)), make([]int, len(p.classes))
	for pf, on := range counts {
		for class, n := range on {
			for range n {
				answer[p.classes[class].requests[dealt[class]]] = pf
				dealt[class]++
			}
		}
	}
	for group, vms := range p.groups {
		p.spreadOut(vms, p.countsOf(group, counts), answer)
	}
	return answer
}

// countsOf returns the counts of the group's classes; all others are zero.
func (p *problem) countsOf(group int, counts [][]int) [][]int {
	of := table(len(p.pfs), len(p.classes))
	for pf, on := range counts {
		for class, n := range on {
			if p.classes[class].group == group {
				of[pf][class] = n
			}
		}
	}
	return of
}

// spreadOut deals the requests of a group out anew, so that no VM gets a PF twice. No PF
// has more of these requests than there are VMs. So the first VM's requests can be paired
// with different PFs, among them every PF that has as many requests as there are VMs
// (Kőnig). Afterwards no PF has more requests than there are VMs left, and the same step
// works for the next VM.
func (p *problem) spreadOut(vms, left [][]int, answer []int) {
	for i, requests := range vms {
		m := p.pair(requests, left, len(vms)-i)
		for at, request := range requests {
			answer[request] = m.mate[at] - len(requests)
			left[answer[request]][p.classOf[request]]--
		}
		p.sort(requests, answer)
	}
}

// sort swaps PFs between a VM's requests of one class, so that the first gets the lowest.
func (p *problem) sort(requests, answer []int) {
	for i, a := range requests {
		for _, b := range requests[i+1:] {
			if p.classOf[a] == p.classOf[b] && answer[b] < answer[a] {
				answer[a], answer[b] = answer[b], answer[a]
			}
		}
	}
}

// pair gives each of the requests a PF. The PFs include every one that has as many
// requests as there are VMs. The matching numbers the requests first, then the PFs.
func (p *problem) pair(requests []int, left [][]int, vms int) *matching {
	m := newMatching(len(requests) + len(p.pfs))
	for pf := range p.pfs {
		for at, request := range requests {
			if left[pf][p.classOf[request]] > 0 {
				m.join(at, len(requests)+pf)
			}
		}
	}
	for pf := range p.pfs {
		if total(left[pf]) == vms {
			m.cover(len(requests) + pf)
		}
	}
	for at := range requests {
		m.cover(at)
	}
	return m
}

func total(counts []int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// A matching pairs neighbours in a bipartite graph.
type matching struct {
	next [][]int // neighbours
	mate []int   // -1 without a mate
	seen []bool
}

func newMatching(n int) *matching {
	return &matching{next: make([][]int, n), mate: slices.Repeat([]int{-1}, n), seen: make([]bool, n)}
}

func (m *matching) join(v, w int) {
	m.next[v], m.next[w] = append(m.next[v], w), append(m.next[w], v)
}

// cover gives v a mate. If need be it gives other vertices a new mate, but it leaves none
// of them without one.
func (m *matching) cover(v int) {
	if m.mate[v] < 0 {
		clear(m.seen)
		m.find(v)
	}
}

func (m *matching) find(v int) bool {
	for _, w := range m.next[v] {
		if m.seen[w] {
			continue
		}
		m.seen[w] = true
		if m.mate[w] < 0 || m.find(m.mate[w]) {
			m.mate[v], m.mate[w] = w, v
			return true
		}
	}
	return false
}
