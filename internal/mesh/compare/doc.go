// SPDX-License-Identifier: Apache-2.0

// Package compare finds the nodes, rails and NICs of a mesh that are slow against the others. To name them
// by another rule, change this package.
package compare
