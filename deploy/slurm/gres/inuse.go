// SPDX-License-Identifier: Apache-2.0

package gres

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/mesh/nodelist"
)

// ofGPU is one kind of GPUs in GresUsed, as "gpu:2(IDX:0,3)" or "gpu:h100:0(IDX:N/A)".
var ofGPU = regexp.MustCompile(`(?:^|,)gpu(?::(?:\(null\)|[^,():]+))?:(\d+)(?:\(IDX:([^)]*)\))?(?:$|,)`)

// InUse reports which GPUs of a node jobs have, by Slurm's numbers, from what scontrol show node --details prints. Slurm
// 22.05 may print only how many these are: then all count as in use while there is one.
func InUse(text string) (func(int) bool, error) {
	var used string
	found := false
	for word := range strings.FieldsSeq(text) {
		if value, ok := strings.CutPrefix(word, "GresUsed="); ok && !found {
			used, found = value, true
		}
	}
	if !found {
		return nil, errors.New("scontrol does not say which GPUs jobs have: it prints no GresUsed=")
	}
	out := map[int]bool{}
	kinds, all := 0, false
	for rest := used; ; kinds++ {
		at := ofGPU.FindStringIndex(rest)
		if at == nil {
			break
		}
		m := ofGPU.FindStringSubmatch(rest[at[0]:at[1]])
		rest = rest[at[1]:]
		switch {
		case m[1] == "0":
			continue
		case m[2] == "":
			all = true
			continue
		}
		numbers, err := nodelist.Expand("[" + m[2] + "]")
		if err != nil || fmt.Sprint(len(numbers)) != m[1] {
			return nil, fmt.Errorf("scontrol does not say which GPUs jobs have: GresUsed=%s", used)
		}
		for _, n := range numbers {
			i, err := strconv.Atoi(n)
			if err != nil {
				return nil, err
			}
			out[i] = true
		}
	}
	if kinds == 0 {
		return nil, fmt.Errorf("scontrol knows of no GPU of the node: GresUsed=%s", used)
	}
	return func(n int) bool { return all || out[n] }, nil
}
