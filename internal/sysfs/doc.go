// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads sysfs, or a tree that looks like it: tests and offline
// analysis put the root elsewhere.
//
// Paths are relative to the root ("class/drm/card0/dev"), and so are the paths
// that come back. Symbolic links are what makes sysfs a topology; Resolve
// follows them and never leaves the root.
//
// To read another form of attribute, add a method.
package sysfs
