// SPDX-License-Identifier: Apache-2.0

// Package wire reads what peers send, and trusts none of it.
//
// Change it to read another kind of value.
package wire
