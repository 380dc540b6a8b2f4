package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A statedKey is a key or the name of a section where it stands in a file.
//
// Only the library's decoder has a stable API, not this parser. But the decoder does not
// suffice (tried with 2.2.4): it takes VM_PER_NODE for vm_per_node; its errors about
// values of a wrong type name no key; its errors about [[network.lan]] and qemu.cpu.model
// do not even have a line.
type statedKey struct {
	path         []string // from the top of the file
	line, column int      // from 1
	list         bool     // written [[key]]
	several      bool     // its value is a list or a table
}

// statedKeys returns the keys of a well-formed file in their order.
func statedKeys(data []byte) []statedKey {
	var (
		parser  unstable.Parser
		keys    []statedKey
		section []string
	)
	parser.Reset(data)
	for parser.NextExpression() {
		switch node := parser.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			key := keyOf(&parser, node, nil)
			key.list, key.several = node.Kind == unstable.ArrayTable, true
			keys = append(keys, key)
			section = key.path
		case unstable.KeyValue:
			keys = appendKeys(keys, &parser, node, section)
		}
	}
	return keys
}

// appendKeys appends the key of an assignment, and those inside it if its value
// is an inline table.
func appendKeys(keys []statedKey, parser *unstable.Parser, node *unstable.Node, section []string) []statedKey {
	key, value := keyOf(parser, node, section), node.Value()
	key.several = value.Kind == unstable.InlineTable || value.Kind == unstable.Array
	keys = append(keys, key)
	if value.Kind == unstable.InlineTable {
		for inner := value.Children(); inner.Next(); {
			keys = appendKeys(keys, parser, inner.Node(), key.path)
		}
	}
	return keys
}

func keyOf(parser *unstable.Parser, node *unstable.Node, section []string) statedKey {
	key := statedKey{path: slices.Clone(section)}
	for part := node.Key(); part.Next(); {
		if key.line == 0 {
			start := parser.Shape(part.Node().Raw).Start
			key.line, key.column = start.Line, start.Column
		}
		key.path = append(key.path, string(part.Node().Data))
	}
	return key
}

// lastBefore returns the key whose value is at a position, or nil.
func lastBefore(keys []statedKey, line, column int) *statedKey {
	var last *statedKey
	for i, key := range keys {
		if key.line < line || key.line == line && key.column <= column {
			last = &keys[i]
		}
	}
	return last
}

// String returns the key as messages name it.
func (k statedKey) String() string { return Quote(strings.Join(k.path, ".")) }

// kind returns the type of the key's value, nil if the key is unknown.
func (k statedKey) kind() reflect.Type { return typeAt(k.path) }

// check refuses an unknown key, a list where named sections belong, and a list or a table
// where a text belongs: the decoder would take that for an empty text.
func (k statedKey) check() error {
	switch {
	case k.kind() == nil:
		return fmt.Errorf("%s: %s", k, k.unknown())
	case k.list:
		return fmt.Errorf("%s: not a list; write [%s] with one pair of brackets", k, strings.Join(k.path, "."))
	case k.several && reflect.PointerTo(k.kind()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return fmt.Errorf("%s: not a text in quotes", k)
	}
	return nil
}

// gone has the keys of earlier releases, and what there is instead.
var gone = map[string]string{
	"vf.vlans": "is pool in [fabric.vlan] now, and jobs get their VLANs from PrologSlurmctld; write it there, as docs/fabric.md says",
}

// unknown says which keys are allowed in place of an unknown one.
func (k statedKey) unknown() string {
	if instead, found := gone[strings.Join(k.path, ".")]; found {
		return instead
	}
	section := k.path[:len(k.path)-1]
	for typeAt(section) == nil {
		section = section[:len(section)-1]
	}
	names := fieldKeys(typeAt(section))
	if len(names) == 0 {
		return "unknown key; " + strings.Join(section, ".") + " has no keys below it"
	}
	return "unknown key; known here: " + strings.Join(names, ", ")
}

func typeAt(path []string) reflect.Type {
	at := reflect.TypeFor[Config]()
	for _, part := range path {
		if at.Kind() == reflect.Map {
			at = at.Elem()
			continue
		}
		i := slices.Index(fieldKeys(at), part)
		if i < 0 {
			return nil
		}
		at = at.Field(i).Type
	}
	return at
}

// fieldKeys returns the keys of a section, in the order of the struct's fields.
func fieldKeys(section reflect.Type) []string {
	if section.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for field := range section.Fields() {
		keys = append(keys, field.Tag.Get("toml"))
	}
	return keys
}
