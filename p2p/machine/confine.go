// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"

	"github.com/gpurdma/gpurdma/internal/files"
)

// Confine confines reads below the directories of the source to these directories, until the caller calls release:
// symbolic links cannot lead out of them, and only regular files of bounded size are read. The caller must confine
// a copy that is not trusted while it is read. Confine does nothing for this machine's own root, and for a tree in
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
