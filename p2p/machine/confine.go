// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"

	"github.com/gpurdma/gpurdma/internal/files"
)

// Confine confines reads below the directories of the source to these directories, until the caller calls release:
// symbolic links cannot lead out of them, and only regular files of bounded size are read. A caller that reads a copy
// which it does not trust must confine it meanwhile. release is nil if Confine returns an error. Confine does nothing for this machine's own root, and for a tree in
// memory, which cannot lead elsewhere.
func (s Source) Confine() (release func(), err error) {
	var all []func()
	release = func() {
		for _, one := range all {
			one()
		}
	}
	for _, dir := range []string{s.Root, s.Sys, s.Proc} {
		if dir == "" || files.InTree(dir) || isRoot(dir) {
			continue
		}
		one, err := files.Confine(dir)
		if err != nil {
			release()
			return nil, err
		}
		all = append(all, one)
	}
	return release, nil
}

// isRoot reports the root of this machine, by any name.
func isRoot(dir string) bool {
	a, err1 := os.Stat(dir)
	b, err2 := os.Stat("/")
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
