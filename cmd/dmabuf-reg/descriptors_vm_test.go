// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Wherever the limit of open files is met, the command says that it is that limit,
// and how to raise it; with one more at a time, verify comes as far as its end.
//
//testbed:kernel 6.12
func TestVMTooFewDescriptors(t *testing.T) {
	testenv.VM(t)
	const few, many = 4, 60 // with fewer the linker does not find libc
	refused := 0
	for n := few; ; n++ {
		if n == many {
			t.Fatalf("%d descriptors are not enough", n)
		}
		r := command(t, "verify", "--gpu", "udmabuf", "--nic", "rxe0", "--size", "64KiB", "--case", "whole buffer")
		r.Args = append([]string{"sh", "-c", "ulimit -n " + strconv.Itoa(n) + ` && exec "$0" "$@"`, r.Path}, r.Args[1:]...)
		r.Path = "/bin/sh"
		status := r.do(t)
		if status == cli.ExitOK {
			break
		}
		refused++
		if !strings.Contains(r.err.String(), "RLIMIT_NOFILE") {
			t.Errorf("with %d descriptors, status %d: %s%s", n, status, &r.out, &r.err)
		}
	}
	if refused == 0 {
		t.Errorf("%d descriptors are enough", few)
	}
}
