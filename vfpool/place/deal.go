package place

import "slices"

// deal turns numbers into an answer: the first requests of a class go to the
// lowest of its PFs. counts is by PF and class.
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

// countsOf returns the counts without those of other classes than the group's.
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

// spreadOut deals the requests of a group out anew, so that no VM gets a PF
// twice. No PF has more of them than there are VMs. So the first VM's requests
// can be paired with PFs among which are all those that have as many (Kőnig), and
// the same holds for the VMs that are left.
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

// sort gives the lowest PF to the first of requests of the same class.
func (p *problem) sort(requests, answer []int) {
	for i, a := range requests {
		for _, b := range requests[i+1:] {
			if p.classOf[a] == p.classOf[b] && answer[b] < answer[a] {
				answer[a], answer[b] = answer[b], answer[a]
			}
		}
	}
}

// pair pairs all of the requests with PFs, and all PFs that have as many requests
// as there are VMs. In the matching, the PFs come after the requests.
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
	mate []int   // -1 is none
	seen []bool
}

func newMatching(n int) *matching {
	return &matching{next: make([][]int, n), mate: slices.Repeat([]int{-1}, n), seen: make([]bool, n)}
}

func (m *matching) join(v, w int) {
	m.next[v], m.next[w] = append(m.next[v], w), append(m.next[w], v)
}

// cover gives v a mate, if need be by giving others another one. Nobody is left
// without who had one.
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
