// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime/debug"
	"testing"
)

// The version that the linker set wins over the one in Go's build information.
func TestVersion(t *testing.T) {
	if v := Version("v1.2"); v != "v1.2" {
		t.Error(v)
	}
	for want, info := range map[string]debug.BuildInfo{
		"unknown":            {Main: debug.Module{Version: "(devel)"}},
		"v1.0.1":             {Main: debug.Module{Version: "v1.0.1"}},
		"0123456789ab-dirty": {Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}},
		"0123456789ab":       {Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}},
	} {
		if got := built(&info); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
