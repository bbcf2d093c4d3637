// SPDX-License-Identifier: Apache-2.0

// Package files reads the files of the machine that is looked at, as package os
// does. They are those of this machine, of a copy of another machine below a directory
// ([Confine]), or of a [Tree] in memory ([Mount]). [Serve] lets another
// [System] answer for a directory: tests make files fail or change by it.
//
// To answer for another kind of machine, implement System. machine.go has this machine's, copied.go and confine.go that
// of a copy, mount.go that of a tree.
package files
