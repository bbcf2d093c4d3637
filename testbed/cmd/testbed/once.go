// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// sharedBuild is the environment variable by which several runs of testbed test, of one
// kernel each, know that they test the same sources: each test binary is then built by the
// first of them that needs it. Its value differs from one `make test` to the next.
const sharedBuild = "GPURDMA_TEST_BUILD"

// once calls build, unless a process with the same name for the sources has built the file
// already. Without a name it always calls it.
func once(file, sources string, build func() error) error {
	if sources == "" {
		return build()
	}
	f, err := os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return err
	}
	if of, err := os.ReadFile(file + ".of"); err == nil && string(of) == sources {
		return nil
	}
	if err := build(); err != nil {
		return err
	}
	return os.WriteFile(file+".of", []byte(sources), 0o644)
}
