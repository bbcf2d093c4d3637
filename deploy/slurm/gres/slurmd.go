// SPDX-License-Identifier: Apache-2.0

package gres

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxFiles is how many device files a node may have.
const MaxFiles = 1024

// Files returns the device files of a node's GPUs in the order in which Slurm counts them, from what slurmd -G
// prints: Slurm's number of a GPU is the place of its file there, not the number in the file's name.
func Files(text string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	lines := 0
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, "Gres ")
		if !ok {
			continue
		}
		v := map[string]string{}
		for _, word := range strings.Fields(rest) {
			if key, value, ok := strings.Cut(word, "="); ok {
				v[key] = value
			}
		}
		if v["Name"] != "gpu" {
			continue
		}
		lines++
		if v["File"] == "" || v["File"] == "(null)" {
			return nil, fmt.Errorf("gres.conf has GPUs without File=, so that nothing says which these are: %s", strings.TrimSpace(line))
		}
		files, err := expand(v["File"])
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if seen[f] {
				return nil, fmt.Errorf("%s is in gres.conf twice", f)
			}
			seen[f] = true
		}
		if out = append(out, files...); len(out) > MaxFiles {
			return nil, errors.New("slurmd has more GPUs than any machine")
		}
	}
	if lines == 0 {
		return nil, errors.New("slurmd has no GPU of this node: has gres.conf lines with Name=gpu, slurm.conf GresTypes=gpu, and its line of the node Gres=gpu:COUNT?")
	}
	return out, nil
}

// expand expands a list of files as Slurm writes it: "/dev/nvidia[0-1,3],/dev/nvidia7".
func expand(list string) (out []string, err error) {
	for list != "" {
		var item string
		if open := strings.IndexAny(list, "[,"); open >= 0 && list[open] == '[' {
			end := strings.IndexByte(list, ']')
			if end < open {
				return nil, fmt.Errorf("%q has a bracket that is not closed", list)
			}
			numbers, err := ranges(list[open+1 : end])
			if err != nil {
				return nil, err
			}
			rest, _, _ := strings.Cut(list[end+1:], ",")
			for _, n := range numbers {
				out = append(out, list[:open]+n+rest)
			}
			list = strings.TrimPrefix(list[end+1+len(rest):], ",")
			continue
		}
		item, list, _ = strings.Cut(list, ",")
		out = append(out, item)
	}
	return out, nil
}

// ranges expands "0-2,7" and keeps leading zeros.
func ranges(text string) (out []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err1 := strconv.ParseUint(from, 10, 16)
		high, err2 := strconv.ParseUint(to, 10, 16)
		if err := errors.Join(err1, err2); err != nil || high < low || high-low >= MaxFiles {
			return nil, fmt.Errorf("%q is no range of device files", part)
		}
		for n := low; n <= high; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return out, nil
}
