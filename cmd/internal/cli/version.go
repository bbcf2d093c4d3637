// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime/debug"
	"strings"
)

// unstamped is the version of a program whose build was told none.
const unstamped = "unknown"

// Version is the version that the build stamped, or else what Go itself noted: of
// the module that `go install` took, or of the repository it was built in.
func Version(stamped string) string {
	if stamped != unstamped {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unstamped
	}
	return built(info)
}

func built(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return unstamped
	}
	return commit + dirty
}

// Revision is the revision of the repository that the build stamped, or else what Go itself noted.
func Revision(stamped string) string {
	if stamped != unstamped {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return unstamped
}

// VersionAndCommit is what --version says: the version, and the commit if that is known and no part of the version.
func VersionAndCommit(version, revision string) string {
	commit := revision[:min(len(revision), 12)]
	if revision == unstamped || revision == "" || strings.Contains(version, commit) {
		return version
	}
	return version + " (commit " + commit + ")"
}
