// SPDX-License-Identifier: Apache-2.0

// Package partners is for NICs that are published beside another driver's GPUs: which value of an attribute a
// NIC has in common with the GPUs that it reaches, and whether the GPUs and NICs of a claim reach each other. To
// accept or to refuse another claim, change Agree; to read another vendor's attribute, change GPUs.
package partners
