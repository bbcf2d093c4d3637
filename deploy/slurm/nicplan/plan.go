// SPDX-License-Identifier: Apache-2.0

package nicplan

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/gpurdma/gpurdma/internal/wholefile"
)

// Schema names the format of a plan.
const Schema = "slurm-p2p/v1"

// MaxBytes is how long a plan's file may be.
const MaxBytes = 1 << 20

// Plan is which NICs the jobs with each GPU of a node use.
type Plan struct {
	Schema string `json:"schema"`
	Boot   string `json:"boot"` // boot_id of the kernel under which it was made
	GPUs   []GPU  `json:"gpus"` // in the order in which Slurm counts them
	// Order is by which rule a library that takes an index counts the GPUs as Slurm does; "" where none does, and
	// Unordered says why.
	Order     string `json:"order"`
	Unordered string `json:"unordered,omitempty"`
}

// PCIOrder is the value of Plan.Order where Slurm's order is that of the PCI addresses of all NVIDIA GPUs of the
// node, which CUDA has with CUDA_DEVICE_ORDER=PCI_BUS_ID.
const PCIOrder = "PCI_BUS_ID"

// KFDOrder is the value of Plan.Order where Slurm's order is that of the kernel's nodes of all AMD GPUs, which
// ROCm has.
const KFDOrder = "KFD"

// GPU is a GPU that Slurm gives to jobs, and the NICs for it.
type GPU struct {
	File   string `json:"file"`          // the device file in gres.conf
	PCI    string `json:"pci"`           // "" where it is not known
	Vendor string `json:"vendor"`        // "nvidia", "amd" or ""
	NICs   []NIC  `json:"nics"`          // that reach its memory directly
	Shared bool   `json:"shared"`        // another GPU has one of these NICs, too
	Why    string `json:"why,omitempty"` // why it has no NIC
	// Held are the NICs that a job with this GPU began with, if these are not NICs: they are its own still.
	Held []string `json:"held,omitempty"`
}

// NIC is an RDMA device, and its ports that are up.
type NIC struct {
	Name  string `json:"name"`
	Ports []int  `json:"ports"`
}

// Write writes a plan to a file that all may read, whole or not at all.
func (p *Plan) Write(file string) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Write(file, 0o644, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// Read reads a plan.
func Read(file string) (*Plan, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%s: it is longer than %d bytes, and no plan is", file, MaxBytes)
	}
	var p Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%s: it is no plan: %w", file, err)
	}
	if p.Schema != Schema {
		return nil, fmt.Errorf("%s: its schema is %q, and this program reads %q: make it anew with slurm-p2p plan", file, p.Schema, Schema)
	}
	return &p, nil
}
