// SPDX-License-Identifier: Apache-2.0

// Package lkeys has a set of local keys that is quick to ask and to change.
package lkeys
