// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/fields"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// docs/reference/p2pcheck/json.md names every field that --json can print, but for those of
// wrong bytes, of which this command looks at none.
func TestEveryFieldIsDocumented(t *testing.T) {
	names := fields.Names(cli.Document{}, result.Run{}, topo.Topology{}, explainResult{}, diffResult{}, reportResult{}, snapshotResult{})
	if len(names) < 50 {
		t.Errorf("only %d fields were found", len(names))
	}
	missing, err := fields.Missing("../../docs/reference/p2pcheck/json.md", names)
	missing = slices.DeleteFunc(missing, func(name string) bool {
		return slices.Contains(fields.Names(canary.Mismatch{}), name)
	})
	if err != nil || len(missing) > 0 {
		t.Errorf("not in docs/reference/p2pcheck/json.md: %q, %v", missing, err)
	}
}

// A document that lacks a field is found out.
func TestAFieldIsMissing(t *testing.T) {
	missing, err := fields.Missing("../../docs/reference/p2pcheck/json.md", []string{"outcome", "no_such_field"})
	if err != nil || !slices.Equal(missing, []string{"no_such_field"}) {
		t.Error(missing, err)
	}
}
