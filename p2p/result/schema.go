// SPDX-License-Identifier: Apache-2.0

package result

// Schemas of the document. In SchemaV1 pairs have no links: a pair is direct if the kernel
// and the exporter let the NIC register the memory, and products, the fabric and the log
// are only the subject of checks.
const (
	Schema   = "p2pcheck/v2"
	SchemaV1 = "p2pcheck/v1"
)

// Older reports whether the run was read from a document of SchemaV1.
func (r Run) Older() bool { return r.Schema == SchemaV1 }
