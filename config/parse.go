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

// Parse reads the text of a configuration. name stands for it in errors, which
// read "NAME:LINE: KEY: what is wrong", without LINE where a value is well
// formed but not allowed.
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
	cfg, err := decode(data)
	if err != nil {
		return Config{}, explain(name, stated, err)
	}
	if err := cfg.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return cfg, nil
}

// decode lays the file over the defaults. What a network starts from hangs on
// its type, so the types are read in a pass of their own.
func decode(data []byte) (Config, error) {
	var types struct {
		Network map[string]struct{ Type NetworkType } `toml:"network"`
	}
	if err := toml.Unmarshal(data, &types); err != nil {
		return Config{}, err
	}
	cfg := Default()
	for name, network := range types.Network {
		if network.Type != "" || name != "default" {
			cfg.Network[name] = defaultNetwork(network.Type)
		}
	}
	decoder := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	return cfg, decoder.Decode(&cfg)
}

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

// printable is for the decoder's messages, which cite the file as it is.
func printable(r rune) rune {
	if unicode.IsGraphic(r) {
		return r
	}
	return unicode.ReplacementChar
}

// kindWord says what a key wants in words that are not Go's.
func kindWord(kind reflect.Type) string {
	switch kind.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.String:
		return "a text in quotes"
	case reflect.Slice:
		return "a list of texts in quotes"
	}
	return "a section"
}
