// SPDX-License-Identifier: Apache-2.0

package result

// Schemas of the document. The first one had pairs without links: a pair was direct if the
// kernel and the exporter let it be registered, and products, the fabric and the log were checks
// beside it.
const (
	Schema   = "p2pcheck/v2"
	SchemaV1 = "p2pcheck/v1"
)

// Older reports a run that was read from a document of the first schema.
func (r Run) Older() bool { return r.Schema == SchemaV1 }
