package pmi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Block says that the nodes First … First+Nodes-1 hold PerNode ranks each,
// in the order of the ranks.
type Block struct{ First, Nodes, PerNode int }

// A Mapping gives the place (node or VM) of each rank, like the value of
// PMI_process_mapping: "(vector,(0,2,4))" puts ranks 0-3 on place 0 and 4-7 on place 1.
// If ranks are left after the last block, the blocks start again.
type Mapping []Block

// maxPlace bounds the numbers in a mapping, far above any cluster.
const maxPlace = 1 << 24

var errMapping = errors.New("not a process mapping")

// ParseMapping reads the value of PMI_process_mapping.
func ParseMapping(value string) (Mapping, error) {
	text := strings.ReplaceAll(value, " ", "")
	body, begins := strings.CutPrefix(text, "(vector")
	body, ends := strings.CutSuffix(body, ")")
	if !begins || !ends || body == "" {
		return nil, fmt.Errorf("parse %.80q: %w", value, errMapping)
	}
	var m Mapping
	for body != "" {
		block, rest, err := parseBlock(body)
		if err != nil {
			return nil, fmt.Errorf("parse %.80q: %w", value, err)
		}
		m, body = append(m, block), rest
	}
	return m, nil
}

// parseBlock reads ",(first,nodes,perNode)" and returns what follows it.
func parseBlock(text string) (Block, string, error) {
	text, begins := strings.CutPrefix(text, ",(")
	inner, rest, ends := strings.Cut(text, ")")
	parts := strings.Split(inner, ",")
	if !begins || !ends || len(parts) != 3 {
		return Block{}, "", errMapping
	}
	var n [3]int
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, 32)
		if err != nil || v > maxPlace || i > 0 && v == 0 {
			return Block{}, "", errMapping
		}
		n[i] = int(v)
	}
	return Block{n[0], n[1], n[2]}, rest, nil
}

// String returns the value of PMI_process_mapping for m.
func (m Mapping) String() string {
	var b strings.Builder
	b.WriteString("(vector")
	for _, block := range m {
		fmt.Fprintf(&b, ",(%d,%d,%d)", block.First, block.Nodes, block.PerNode)
	}
	b.WriteString(")")
	return b.String()
}

// Places returns the place of each of the given number of ranks.
func (m Mapping) Places(ranks int) []int {
	places := make([]int, 0, ranks)
	for len(m) > 0 {
		for _, block := range m {
			for i := range block.Nodes * block.PerNode {
				if len(places) == ranks {
					return places
				}
				places = append(places, block.First+i/block.PerNode)
			}
		}
	}
	return places
}

// mappingOf returns the shortest plain mapping in which rank i is at
// places[i].
func mappingOf(places []int) Mapping {
	var m Mapping
	for i := 0; i < len(places); {
		run := 1
		for i+run < len(places) && places[i+run] == places[i] {
			run++
		}
		last := len(m) - 1
		if last >= 0 && m[last].PerNode == run && m[last].First+m[last].Nodes == places[i] {
			m[last].Nodes++
		} else {
			m = append(m, Block{places[i], 1, run})
		}
		i += run
	}
	return m
}

// Wrapped returns the shortest prefix of m that gives that many ranks the same places,
// because it starts again at its end. MPICH starts again at the first block of place 0,
// so m must begin there.
func (m Mapping) Wrapped(ranks int) Mapping {
	places := m.Places(ranks)
	period := 0
	for i, block := range m {
		period += block.Nodes * block.PerNode
		if periodic(places, period) {
			return m[:i+1]
		}
	}
	return m
}

func periodic(places []int, period int) bool {
	for i := period; i < len(places); i++ {
		if places[i] != places[i-period] {
			return false
		}
	}
	return true
}
