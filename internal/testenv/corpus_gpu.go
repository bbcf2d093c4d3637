// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// CorpusGPU has the answers of the vendor's library about one GPU. DMABuf and RDMA are "yes" or "no",
// and "" where the library was not asked.
type CorpusGPU struct {
	GPU    string // a PCI address
	DMABuf string // it exports dma-bufs
	RDMA   string // CUDA's attribute GPU_DIRECT_RDMA_SUPPORTED
	Mark   string // one of [CorpusMarks]
	Reason string
	Source string // the short name of a source, a colon, and the place in it
}

// corpusAnswer is the answer for all GPUs that match.
type corpusAnswer struct {
	GPU    string `json:"gpu"` // a pattern of path.Match
	DMABuf string `json:"dma_buf,omitempty"`
	RDMA   string `json:"gpu_direct_rdma,omitempty"`
	Mark   string `json:"mark"`
	Reason string `json:"reason"`
	Source string `json:"source"`
}

// check refuses an answer that does not say how it is known.
func (g corpusAnswer) check(sources map[string]string) error {
	var errs []error
	for _, answer := range []string{g.DMABuf, g.RDMA} {
		if answer != "" && answer != "yes" && answer != "no" {
			errs = append(errs, fmt.Errorf("answer %q is neither yes nor no", answer))
		}
	}
	if g.DMABuf+g.RDMA == "" {
		errs = append(errs, errors.New("no answer"))
	}
	if !slices.Contains(CorpusMarks, g.Mark) {
		errs = append(errs, fmt.Errorf("mark %q is none of %q", g.Mark, CorpusMarks))
	}
	if g.Reason == "" {
		errs = append(errs, errors.New("no reason"))
	}
	source, at, _ := strings.Cut(g.Source, ": ")
	if _, ok := sources[source]; !ok || strings.TrimSpace(at) == "" {
		errs = append(errs, fmt.Errorf("source %q is not the short name of one of the sources, a colon, and a place in it", g.Source))
	}
	if _, err := path.Match(g.GPU, ""); err != nil || g.GPU == "" {
		errs = append(errs, fmt.Errorf("pattern %q", g.GPU))
	}
	return errors.Join(errs...)
}

// answers gives each GPU of a tree the first answer that matches, if one does.
func (f *corpusFile) answers(tree *corpusTree) ([]CorpusGPU, error) {
	var out []CorpusGPU
	used := make([]bool, len(f.GPUs))
	for _, gpu := range slices.Sorted(maps.Keys(tree.gpus())) {
		for i, g := range f.GPUs {
			if is, _ := path.Match(g.GPU, gpu); is {
				out = append(out, CorpusGPU{gpu, g.DMABuf, g.RDMA, g.Mark, g.Reason, g.Source})
				used[i] = true
				break
			}
		}
	}
	var errs []error
	for i, g := range f.GPUs {
		if !used[i] {
			errs = append(errs, fmt.Errorf("GPU %s: the tree has none, or other answers took all of them", g.GPU))
		}
	}
	return out, errors.Join(errs...)
}

// ReadCorpusMachine reads one machine: the folder name below dir. The hardware test writes such
// folders.
func ReadCorpusMachine(dir, name string) (CorpusMachine, error) { return readMachine(dir, name) }
