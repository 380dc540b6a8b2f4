package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2"
)

// Parse reads the text of a configuration. Errors read "NAME:LINE: KEY: what is wrong",
// or without LINE if a value is well formed but not allowed.
func Parse(name string, data []byte) (Config, error) {
	var anything map[string]any
	if err := toml.Unmarshal(data, &anything); err != nil {
		return Config{}, explain(name, nil, err)
	}
	stated := statedKeys(data)
	for _, key := range stated {
		if err := key.check(); err != nil {
			return Config{}, fmt.Errorf("%s:%d: %w", name, key.line, err)
		}
	}
	cfg, err := decode(data, stated)
	if err != nil {
		return Config{}, explain(name, stated, err)
	}
	if err := cfg.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return cfg, nil
}

// decode fills the values of the file into the defaults.
func decode(data []byte, stated []statedKey) (Config, error) {
	cfg := Default()
	decoder := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	if err := decoder.Decode(&cfg); err != nil {
		return Config{}, err
	}
	paths := pathsOf(stated)
	for name, network := range cfg.Network {
		kind := network.Type
		if name == "default" && kind == "" {
			kind = NetworkJob
		}
		setUnstated(&network, defaultNetwork(kind), paths, "network", name)
		cfg.Network[name] = network
	}
	for name, image := range cfg.Images.Catalogue {
		setUnstated(&image, defaultImage(), paths, "images", "catalogue", name)
		cfg.Images.Catalogue[name] = image
	}
	for name, pf := range cfg.VF.Software {
		setUnstated(&pf, defaultSoftwarePF(), paths, "vf", "software", name)
		cfg.VF.Software[name] = pf
	}
	for name, pool := range cfg.Fabric.Pool {
		setUnstated(&pool, defaultTagPool(), paths, "fabric", "pool", name)
		cfg.Fabric.Pool[name] = pool
	}
	return cfg, nil
}

// setUnstated sets the keys of a named section that the file does not state to their
// defaults. This works only after decoding: some defaults depend on other keys, and the
// decoder discards what an inline table replaces.
func setUnstated[T any](section *T, defaults T, stated map[string]bool, path ...string) {
	to, from := reflect.ValueOf(section).Elem(), reflect.ValueOf(defaults)
	for i, key := range fieldKeys(to.Type()) {
		if !stated[joinPath(append(path, key))] {
			to.Field(i).Set(from.Field(i))
		}
	}
}

func pathsOf(keys []statedKey) map[string]bool {
	paths := map[string]bool{}
	for _, key := range keys {
		paths[joinPath(key.path)] = true
	}
	return paths
}

// joinPath makes one text of a path. Its separator differs from ".", which parts may
// contain.
func joinPath(path []string) string { return strings.Join(path, "\x00") }

// explain turns the decoder's error into a sentence that names file, line and key.
func explain(name string, stated []statedKey, err error) error {
	text := strings.Map(printable, strings.TrimPrefix(err.Error(), "toml: "))
	var fault *toml.DecodeError
	if !errors.As(err, &fault) {
		return fmt.Errorf("%s: %s", name, text)
	}
	line, column := fault.Position()
	key := lastBefore(stated, line, column)
	if key == nil {
		return fmt.Errorf("%s:%d: %s", name, line, text)
	}
	if strings.HasPrefix(text, "cannot ") || strings.Contains(text, "cannot be assigned") {
		text = "not " + kindWord(key.kind())
	}
	return fmt.Errorf("%s:%d: %s: %s", name, line, key, text)
}

// printable replaces characters that would disturb a terminal: the decoder's messages
// quote the file.
func printable(r rune) rune {
	if unicode.IsGraphic(r) {
		return r
	}
	return unicode.ReplacementChar
}

// kindWord names the type that a key takes, in words for users who do not know Go.
func kindWord(kind reflect.Type) string {
	switch kind.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "true or false, without quotes"
	case reflect.String:
		return "a text in quotes"
	case reflect.Slice:
		return "a list of texts in quotes"
	}
	return "a section"
}
