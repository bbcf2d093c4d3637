// SPDX-License-Identifier: Apache-2.0

// Package human writes values for people to read: tables, lists, counts, sizes, rates and
// times. To add a kind of value, change this package.
package human
