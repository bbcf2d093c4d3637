// SPDX-License-Identifier: Apache-2.0

// Package files reads the files of the machine that is looked at, as package os
// does. They are those of this machine, of a copy of another machine below a directory
// ([Confine]), or of a [Tree] in memory ([Mount]). Tests set [Before] to inject errors, and to
// change a file between two reads.
package files
