// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/redact"
)

// manifestName is the first file of a snapshot.
const (
	manifestName = "p2pcheck-snapshot.json"
	schema       = "p2pcheck-snapshot/v1"
	// unreadableKey marks a file that could not be read.
	unreadableKey = "P2PCHECK.unreadable"
)

// manifest identifies a snapshot.
type manifest struct {
	Schema   string   `json:"schema"`
	Version  string   `json:"version"`
	LookedAt []string `json:"looked_at"` // patterns: a file that one matches and the archive lacks did not exist
}

// patterns match all files that this version reads.
func patterns() []string {
	var out []string
	for _, item := range slices.Concat(redact.Taken(), redact.OfFunctions(), redact.OfEndpoints()) {
		out = append(out, item.Pattern)
	}
	return out
}

// checkManifest fails for a file that is no manifest, or that of a version which did not look at all files.
func checkManifest(h *tar.Header, r io.Reader) error {
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > fileLimit {
		return errors.New("it does not begin with " + manifestName)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m.Schema != schema {
		return fmt.Errorf("schema %q, and this program reads %s", m.Schema, schema)
	}
	looked := map[string]bool{}
	for _, pattern := range m.LookedAt {
		looked[strings.TrimPrefix(pattern, "!")] = true // older versions mark names whose contents they leave out
	}
	for _, pattern := range patterns() {
		if looked[pattern] {
			continue
		}
		by := "an older p2pcheck"
		if m.Version != "unknown" {
			by += " (" + m.Version + ")"
		}
		return refusal(fmt.Sprintf("taken by %s, which did not look at %s: take a new one", by, pattern))
	}
	return nil
}
