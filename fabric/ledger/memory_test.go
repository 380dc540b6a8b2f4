package ledger

import (
	"maps"
	"slices"
)

// memory is a map as a store.
type memory map[bucket]map[string][]byte

func newMemory() memory {
	m := memory{}
	for _, b := range buckets {
		m[b] = map[string][]byte{}
	}
	return m
}

func (m memory) get(b bucket, key string) []byte { return m[b][key] }

func (m memory) put(b bucket, key string, value []byte) error {
	m[b][key] = value
	return nil
}

func (m memory) remove(b bucket, key string) error {
	delete(m[b], key)
	return nil
}

func (m memory) scan(b bucket, from string, do func(string, []byte) bool) {
	for _, key := range slices.Sorted(maps.Keys(m[b])) {
		if key >= from && !do(key, m[b][key]) {
			return
		}
	}
}

func (m memory) clone() memory {
	c := memory{}
	for b, values := range m {
		c[b] = maps.Clone(values)
	}
	return c
}
