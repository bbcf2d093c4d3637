// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Files returns the files among the arguments, and the .json files of the directories among
// them. An argument that does not exist counts as a file. Errors: a directory that cannot be read or
// has no .json file, and a file that is named twice.
func Files(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		if st, err := os.Stat(arg); err != nil || !st.IsDir() {
			files = append(files, filepath.Clean(arg)) // reading it says what is wrong
			continue
		}
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, err
		}
		n := len(files)
		for _, e := range entries {
			if !e.IsDir() && strings.HasSuffix(e.Name(), ".json") {
				files = append(files, filepath.Join(arg, e.Name()))
			}
		}
		if len(files) == n {
			return nil, fmt.Errorf("%s has no .json file", arg)
		}
	}
	seen := map[string]bool{}
	for _, file := range files {
		if seen[file] {
			return nil, fmt.Errorf("%s is named twice", file)
		}
		seen[file] = true
	}
	return files, nil
}

// Names returns the names of nodes, by the names of their files without .json: with as many
// directories in front as make all names different. For files DIRECTORY/NODE/p2pcheck.json it returns
// the names of the directories. If two names stay equal, it returns the files' own names.
func Names(files []string) []string {
	names := make([]string, len(files))
	parts := make([][]string, len(files))
	left := make([]int, len(files)) // files without a name of their own
	for i, file := range files {
		parts[i] = strings.Split(filepath.ToSlash(strings.TrimSuffix(file, ".json")), "/")
		left[i] = i
	}
	for n := 1; len(left) > 0; n++ {
		count := map[string]int{}
		for _, p := range parts {
			if len(p) >= n {
				count[strings.Join(p[len(p)-n:], "/")]++
			}
		}
		var ambiguous []int
		for _, i := range left {
			p := parts[i]
			names[i] = strings.Join(p[len(p)-n:], "/")
			if count[names[i]] > 1 && n < len(p) {
				ambiguous = append(ambiguous, i)
			}
		}
		left = ambiguous
	}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] { // a and a.json
			return files
		}
		seen[name] = true
	}
	// DIRECTORY/NODE/p2pcheck.json: the directory is the node.
	last := func(name string) string { return name[strings.LastIndex(name, "/")+1:] }
	for _, name := range names {
		if !strings.Contains(name, "/") || last(name) != last(names[0]) {
			return names
		}
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, "/"+last(name))
	}
	return names
}
