// SPDX-License-Identifier: Apache-2.0

// Package layouttest makes random layouts, each with a model: the same bytes written
// down one by one.
//
// Change it to make another shape of layout.
package layouttest
