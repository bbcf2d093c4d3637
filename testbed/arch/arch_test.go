// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"slices"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	for _, name := range append(Flavours(), "") {
		a, err := Lookup(name)
		if err != nil || name != "" && a.Flavour != name || a.PageSize == 0 || a.Emulator == "" || !strings.HasPrefix(a.Flavour, a.Name) {
			t.Errorf("%q: %+v, %v", name, a, err)
		}
	}
	if _, err := Lookup("arm64-64k"); err == nil || !strings.Contains(err.Error(), "amd64, arm64-16k, arm64") {
		t.Errorf("a flavour that there is not: %v", err)
	}
}

// Programs for another processor are built with its compiler and the guest's libraries.
func TestEnviron(t *testing.T) {
	for _, a := range all {
		env := a.Environ("/root")
		if a.Host() {
			if env != nil || a.Userland("/build") != "" {
				t.Errorf("%s is this machine's: %v, %s", a.Flavour, env, a.Userland("/build"))
			}
			continue
		}
		if !slices.Contains(env, "GOARCH="+a.Name) || !slices.Contains(env, "CC="+a.Compiler+" --sysroot=/root") || !slices.Contains(env, "CGO_ENABLED=1") {
			t.Errorf("%s: %v", a.Flavour, env)
		}
		if got := a.Userland("/build"); got != "/build/userland-"+a.Name {
			t.Errorf("%s: its root is %s", a.Flavour, got)
		}
	}
}
