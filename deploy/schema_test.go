// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas are the JSON Schemas of what the commands print, for programs that read it.
const schemas = "../docs/reference/schema"

// compiled are the schemas, by their files' names without ".json". Another implementation than the one
// that wrote them compiles them, against the meta-schema of draft 2020-12.
func compiled(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	out := map[string]*jsonschema.Schema{}
	err := filepath.WalkDir(schemas, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && e.Name() == "examples" {
			return errOr(err, fs.SkipDir)
		}
		if filepath.Ext(name) != ".json" {
			return nil
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		s, err := c.Compile(name)
		if err != nil {
			return err
		}
		if s.DraftVersion != 2020 {
			t.Errorf("%s is of draft %d", name, s.DraftVersion)
		}
		rel, _ := filepath.Rel(schemas, strings.TrimSuffix(name, ".json"))
		out[rel] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// Each schema is one of draft 2020-12, and each example is as its schema says.
func TestSchemasAreSchemas(t *testing.T) {
	all, examples := compiled(t), 0
	if len(all) < 20 {
		t.Errorf("only %d schemas", len(all))
	}
	err := filepath.WalkDir(filepath.Join(schemas, "examples"), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		examples++
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return err
		}
		of, _ := filepath.Rel(filepath.Join(schemas, "examples"), strings.TrimSuffix(name, ".json"))
		s := all[of]
		if s == nil {
			t.Errorf("%s has no schema", name)
			return nil
		}
		if err := s.Validate(document); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		object := document.(map[string]any)
		delete(object, "errors")
		if s.Validate(object) == nil {
			t.Errorf("%s is as its schema says without its errors, too", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if examples < 7 {
		t.Errorf("only %d examples", examples)
	}
}
