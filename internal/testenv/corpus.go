// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// CorpusMachine is a machine of p2p/testdata/machines: its files, and the right
// answer for each pair of a GPU and a NIC. The README there describes the format.
type CorpusMachine struct {
	Name    string            // of its folder
	Title   string            // the machine in one line
	Origin  string            // where its tree comes from, one of [CorpusOrigins]
	Sources map[string]string // documents and reports, by a short name
	Note    string            // a remark on the labels
	Filled  string            // the facts of the tree that the sources do not give
	Pairs   []CorpusPair      // all pairs of the tree, by GPU, then by NIC
	GPUs    []CorpusGPU       // answers of the vendors' libraries
	Tree    Tree
}

// CorpusPair is the label of one pair. Where Answer is "" there is none, and Reason
// says why.
type CorpusPair struct {
	GPU      string // a PCI address
	NIC      string // an RDMA device
	Answer   string // one of [CorpusAnswers]
	Mark     string // one of [CorpusMarks]
	Reason   string
	Source   string // the short name of a source, a colon, and the place in it
	Readable bool   // the facts that decide are in the tree
}

// CorpusOrigins are the kinds of places that trees come from.
var CorpusOrigins = []string{"hwloc test suite", "case", "vendor document", "public report", "topology file", "hardware test", "ours", "constructed"}

// CorpusAnswers are what a label can say of a pair:
//
//	direct      the NIC reads and writes the GPU's memory
//	staged      registration succeeds, and the bytes are in system memory
//	refused     registration fails
//	lost        registration succeeds, and no byte arrives
//	not direct  a source says that it does not work, and not how
//	unknown     the facts that decide are not in the tree, nor in the sources
var CorpusAnswers = []string{"direct", "staged", "refused", "lost", "not direct", "unknown"}

// CorpusMarks are how a label is known: a report of a run, a document, or the source
// code of a driver for a machine that differs from another in one fact.
var CorpusMarks = []string{"observed", "documented", "constructed"}

// corpusDir is the corpus below the directory of the repository.
const corpusDir = "p2p/testdata/machines"

// corpusFile is machine.json.
type corpusFile struct {
	Title      string            `json:"title"`
	Origin     string            `json:"origin"`
	Sources    map[string]string `json:"sources"`
	Note       string            `json:"note,omitempty"`
	Filled     string            `json:"filled,omitempty"`
	Pairs      []corpusLabel     `json:"pairs,omitempty"`
	Unlabelled []corpusLabel     `json:"unlabelled,omitempty"`
	GPUs       []corpusAnswer    `json:"gpus,omitempty"`
}

// corpusLabel is the label of all pairs that match.
type corpusLabel struct {
	GPU      string `json:"gpu"`             // a pattern of path.Match
	NIC      string `json:"nic"`             // likewise
	Where    string `json:"where,omitempty"` // one of corpusPlaces, or "" for everywhere
	Answer   string `json:"answer,omitempty"`
	Mark     string `json:"mark,omitempty"`
	Reason   string `json:"reason"`
	Source   string `json:"source,omitempty"`
	Readable *bool  `json:"readable,omitempty"`

	matched int
}

// Corpus reads all machines of p2p/testdata/machines. An error in one of them fails
// the test.
func Corpus(t testing.TB) []CorpusMachine {
	t.Helper()
	dir, err := findCorpus()
	if err != nil {
		t.Fatal(err)
	}
	machines, err := readCorpus(dir)
	if err != nil {
		t.Fatal(err)
	}
	return machines
}

// CorpusNamed reads one machine of p2p/testdata/machines.
func CorpusNamed(t testing.TB, name string) CorpusMachine {
	t.Helper()
	dir, err := findCorpus()
	if err != nil {
		t.Fatal(err)
	}
	m, err := readMachine(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// findCorpus returns the corpus below the nearest directory above that has it: tests run in the directory of
// their package, which may be of another module of this repository.
func findCorpus() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if st, err := os.Stat(filepath.Join(dir, corpusDir)); err == nil && st.IsDir() {
			return filepath.Join(dir, corpusDir), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no " + corpusDir + " in this directory or above it")
		}
		dir = up
	}
}

// notMachines are folders of the corpus that hold no machine.
var notMachines = []string{"common", "convert"}

func readCorpus(dir string) ([]CorpusMachine, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []CorpusMachine
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || slices.Contains(notMachines, e.Name()) {
			continue
		}
		m, err := readMachine(dir, e.Name())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path.Join(filepath.Base(dir), e.Name()), err))
			continue
		}
		out = append(out, m)
	}
	return out, errors.Join(errs...)
}

func readMachine(dir, name string) (CorpusMachine, error) {
	m := CorpusMachine{Name: name}
	data, err := os.ReadFile(filepath.Join(dir, name, "machine.json"))
	if err != nil {
		return m, err
	}
	f, err := parseLabels(data)
	if err != nil {
		return m, fmt.Errorf("machine.json: %w", err)
	}
	tree, err := parseTree(dir, path.Join(name, "tree.txt"))
	if err != nil {
		return m, err
	}
	m.Title, m.Origin, m.Sources, m.Note, m.Filled = f.Title, f.Origin, f.Sources, f.Note, f.Filled
	m.Tree = tree.tree()
	var unlabelled, unanswered error
	m.Pairs, unlabelled = f.label(tree)
	m.GPUs, unanswered = f.answers(tree)
	return m, errors.Join(unlabelled, unanswered)
}

func parseLabels(data []byte) (corpusFile, error) {
	var f corpusFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return f, errors.New("there is text behind the machine")
	}
	var errs []error
	if f.Title == "" {
		errs = append(errs, errors.New("no title"))
	}
	if !slices.Contains(CorpusOrigins, f.Origin) {
		errs = append(errs, fmt.Errorf("origin %q is none of %q", f.Origin, CorpusOrigins))
	}
	if len(f.Sources) == 0 {
		errs = append(errs, errors.New("no source"))
	}
	for i := range f.Pairs {
		if err := f.Pairs[i].check(f.Sources); err != nil {
			errs = append(errs, fmt.Errorf("pair %s, %s: %w", f.Pairs[i].GPU, f.Pairs[i].NIC, err))
		}
	}
	for _, g := range f.GPUs {
		if err := g.check(f.Sources); err != nil {
			errs = append(errs, fmt.Errorf("GPU %s: %w", g.GPU, err))
		}
	}
	for _, l := range f.Unlabelled {
		if err := l.checkPlace(); err != nil {
			errs = append(errs, fmt.Errorf("unlabelled pair %s, %s: %w", l.GPU, l.NIC, err))
		}
		if l.Answer != "" || l.Mark != "" || l.Source != "" || l.Readable != nil {
			errs = append(errs, fmt.Errorf("unlabelled pair %s, %s has more than a reason", l.GPU, l.NIC))
		}
	}
	return f, errors.Join(errs...)
}

// check refuses a label that does not say how it is known.
func (l corpusLabel) check(sources map[string]string) error {
	var errs []error
	if !slices.Contains(CorpusAnswers, l.Answer) {
		errs = append(errs, fmt.Errorf("answer %q is none of %q", l.Answer, CorpusAnswers))
	}
	if !slices.Contains(CorpusMarks, l.Mark) {
		errs = append(errs, fmt.Errorf("mark %q is none of %q", l.Mark, CorpusMarks))
	}
	source, at, _ := strings.Cut(l.Source, ": ")
	if _, ok := sources[source]; !ok || strings.TrimSpace(at) == "" {
		errs = append(errs, fmt.Errorf("source %q is not the short name of one of the sources, a colon, and a place in it", l.Source))
	}
	if l.Answer == "unknown" && (l.Readable == nil || *l.Readable) {
		errs = append(errs, errors.New("the answer is unknown, and readable is not false"))
	}
	return errors.Join(append(errs, l.checkPlace())...)
}

func (l corpusLabel) checkPlace() error {
	var errs []error
	if l.Reason == "" {
		errs = append(errs, errors.New("no reason"))
	}
	if l.Where != "" && !slices.Contains(corpusPlaces, l.Where) {
		errs = append(errs, fmt.Errorf("where %q is none of %q", l.Where, corpusPlaces))
	}
	for _, pattern := range []string{l.GPU, l.NIC} {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			errs = append(errs, fmt.Errorf("pattern %q", pattern))
		}
	}
	return errors.Join(errs...)
}

// corpusPlaces are how GPU and NIC can lie to each other: below a bridge that both
// have, below one host bridge, and below two.
var corpusPlaces = []string{"one switch", "one host bridge", "two host bridges"}

// label gives each pair of a tree the first label that matches.
func (f *corpusFile) label(tree *corpusTree) ([]CorpusPair, error) {
	gpus, nics := tree.gpus(), tree.nics()
	var out []CorpusPair
	var errs []error
	for _, gpu := range slices.Sorted(maps.Keys(gpus)) {
		for _, nic := range slices.Sorted(maps.Keys(nics)) {
			p, ok := f.labelOf(gpu, nic, corpusPlace(gpus[gpu], nics[nic]))
			if !ok {
				errs = append(errs, fmt.Errorf("pair %s, %s has no label and is not listed as unlabelled", gpu, nic))
			}
			out = append(out, p)
		}
	}
	for _, l := range slices.Concat(f.Pairs, f.Unlabelled) {
		if l.matched == 0 {
			errs = append(errs, fmt.Errorf("label %s, %s: the tree has no such pair, or others took all of them", l.GPU, l.NIC))
		}
	}
	return out, errors.Join(errs...)
}

func (f *corpusFile) labelOf(gpu, nic, place string) (CorpusPair, bool) {
	p := CorpusPair{GPU: gpu, NIC: nic, Readable: true}
	for _, labels := range [][]corpusLabel{f.Pairs, f.Unlabelled} {
		for i := range labels {
			l := &labels[i]
			isGPU, _ := path.Match(l.GPU, gpu)
			isNIC, _ := path.Match(l.NIC, nic)
			if !isGPU || !isNIC || l.Where != "" && l.Where != place {
				continue
			}
			l.matched++
			p.Answer, p.Mark, p.Reason, p.Source = l.Answer, l.Mark, l.Reason, l.Source
			if l.Readable != nil {
				p.Readable = *l.Readable
			}
			return p, true
		}
	}
	return p, false
}

// corpusPlace compares two paths below devices/. A function on no PCI bus is below
// no host bridge that another is below.
func corpusPlace(gpu, nic string) string {
	a, b := strings.Split(gpu, "/"), strings.Split(nic, "/")
	switch {
	case !strings.HasPrefix(a[0], "pci") || a[0] != b[0]:
		return "two host bridges"
	case len(a) > 2 && len(b) > 2 && a[1] == b[1]:
		return "one switch"
	}
	return "one host bridge"
}
