// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// filesOf are the files among the arguments, and the .json files of the directories among them.
func filesOf(args []string) ([]string, error) {
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
	for i, file := range files {
		if slices.Contains(files[:i], file) {
			return nil, fmt.Errorf("%s is named twice", file)
		}
	}
	return files, nil
}

// nodeNames are the files' names, with as many directories in front as make all names different.
// Directories that all files share are left out.
func nodeNames(files []string) []string {
	names := make([]string, len(files))
	parts := make([][]string, len(files))
	for i, file := range files {
		parts[i] = strings.Split(filepath.ToSlash(strings.TrimSuffix(file, ".json")), "/")
	}
	for i, p := range parts {
		for n := 1; n <= len(p); n++ {
			names[i] = strings.Join(p[len(p)-n:], "/")
			if !slices.ContainsFunc(parts, func(other []string) bool {
				return &other[0] != &p[0] && slices.Equal(other[max(0, len(other)-n):], p[len(p)-n:])
			}) {
				break
			}
		}
	}
	// DIRECTORY/NODE/p2pcheck.json: the directory is the node.
	last := func(name string) string { return name[strings.LastIndex(name, "/")+1:] }
	for i, name := range names {
		if slices.Contains(names[:i], name) { // a and a.json
			return files
		}
	}
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
