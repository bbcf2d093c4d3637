// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/fields"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
)

// docs/reference/json.md leads to the schema of each document, which describes the fields, and names what all
// documents have in common: their fields, those of an error, and the kinds of errors.
func TestDocumentsAreDocumented(t *testing.T) {
	const page = "docs/reference/json.md"
	referencetest.Linked(t, page, documents())
	missing, err := fields.Missing("../../"+page, append(fields.Names(cli.Document{}, cli.Error{}), cli.Kinds...))
	if err != nil || len(missing) > 0 {
		t.Errorf("not in %s: %q, %v", page, missing, err)
	}
}
