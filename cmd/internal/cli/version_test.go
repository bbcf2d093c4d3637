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
		"1.0.1":              {Main: debug.Module{Version: "v1.0.1"}},
		"0123456789ab-dirty": {Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}},
		"0123456789ab":       {Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}},
	} {
		if got := built(&info); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestVersionAndCommit(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct{ version, revision, want string }{
		{"0.1.0", commit, "0.1.0 (commit 0123456789ab)"},
		{"0.1.0+git5.0123456789ab", commit, "0.1.0+git5.0123456789ab"},
		{"0.1.0", "unknown", "0.1.0"},
		{"0.1.0", "abc", "0.1.0 (commit abc)"},
		{"unknown", "unknown", "unknown"},
	} {
		if got := VersionAndCommit(c.version, c.revision); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
