// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"

	"github.com/gpurdma/gpurdma/internal/files"
)

// Confine makes the directories of the source the roots of another machine, until release is called: links lead within
// them, and only regular files of bounded size are read. A copy from a source that is not trusted must be confined while
// it is read. This machine's own root is left as it is, and so is a tree in memory, which cannot lead elsewhere.
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
