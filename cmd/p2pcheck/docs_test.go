// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/fields"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// docs/reference/p2pcheck/json.md leads to the schema of each document, which describes the fields, and names
// the fields of a run.
func TestDocumentsAreDocumented(t *testing.T) {
	const page = "docs/reference/p2pcheck/json.md"
	referencetest.Linked(t, page, documents())
	missing, err := fields.Missing("../../"+page, fields.Names(result.Run{}))
	if err != nil || len(missing) > 0 {
		t.Errorf("not in %s: %q, %v", page, missing, err)
	}
}

// A document that lacks a field is found out.
func TestAFieldIsMissing(t *testing.T) {
	missing, err := fields.Missing("../../docs/reference/p2pcheck/json.md", []string{"outcome", "no_such_field"})
	if err != nil || !slices.Equal(missing, []string{"no_such_field"}) {
		t.Error(missing, err)
	}
}
