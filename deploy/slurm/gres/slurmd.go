// SPDX-License-Identifier: Apache-2.0

package gres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/internal/mesh/nodelist"
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
		files, err := nodelist.Expand(v["File"]) // Slurm writes lists of files as it writes those of hosts
		if err != nil {
			return nil, fmt.Errorf("the files of GPUs: %w", err)
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
