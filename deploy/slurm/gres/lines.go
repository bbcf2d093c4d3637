// SPDX-License-Identifier: Apache-2.0

package gres

import (
	"fmt"
	"io"
	"regexp"

	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
)

// word is what a name may be in Slurm's configuration without being split or expanded.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Lines are the options of the lines for a node.
type Lines struct {
	Node string // its name in slurm.conf; "" where gres.conf is this node's alone
	Type string // of the GPUs; "" for none
}

// Write writes the lines of gres.conf for a node's GPUs, by PCI address, as CUDA counts them with
// CUDA_DEVICE_ORDER=PCI_BUS_ID. A GPU without a device file has a comment in place of a line, and is in
// the count that is returned.
func (l Lines) Write(w io.Writer, devices nicplan.List) (missing int, err error) {
	prefix := ""
	for _, name := range []string{l.Node, l.Type} {
		if name != "" && !word.MatchString(name) {
			return 0, fmt.Errorf("%q is no name for gres.conf: letters, digits, and . _ - between them", name)
		}
	}
	if l.Node != "" {
		prefix = "NodeName=" + l.Node + " "
	}
	prefix += "Name=gpu "
	if l.Type != "" {
		prefix += "Type=" + l.Type + " "
	}
	for _, d := range devices {
		if len(d.Files) == 0 {
			missing++
			if _, err := fmt.Fprintf(w, "# %s has no device file: is its driver loaded?\n", d.Name); err != nil {
				return missing, err
			}
			continue
		}
		flags := ""
		if d.Vendor == "amd" {
			// Without it Slurm sets CUDA_VISIBLE_DEVICES as well as ROCR_VISIBLE_DEVICES: a second filter.
			flags = "Flags=amd_gpu_env "
		}
		if _, err := fmt.Fprintf(w, "%sFile=%s %s# %s\n", prefix, d.Files[0], flags, d.Name); err != nil {
			return missing, err
		}
	}
	return missing, nil
}
