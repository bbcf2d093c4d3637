// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// backend is a family of allocators: one file each.
type backend interface {
	// discover lists the family's allocators on this machine, and an
	// unavailable one where the family is known and nothing is there. It may
	// leave out what spec does not mean, unless that is "".
	discover(env Env, spec string) []candidate
}

// candidate is an allocator that could be opened.
type candidate struct {
	Description
	rank int   // of "auto": higher is better
	room int64 // bytes free, which decides between equal ranks; 0: not known
	err  error // the device's answer, if it is not available
	open func(env Env, d Description) (Allocator, error)
}

// Ranks of "auto", best last. GPU memory is what the toolkit is for; among
// exporters of system memory, one with fewer limits goes first.
const (
	rankVirtual = iota // a display device of a virtual machine
	rankUDMABuf
	rankTest // vgem, which exists for tests
	rankHeap
	rankGPUSystem   // system memory by a GPU's driver
	rankGPU         // dumb buffers of a real GPU: the driver decides where
	rankVRAMOnly    // the GPU's own memory, for importers that can reach it there
	rankVRAM        // asked for in the GPU's own memory
	rankAlternative // the vendor's runtime, not its usual way of allocating
	rankRuntime     // the vendor's runtime
)

// why explains a rank to the user of "auto".
var why = map[int]string{
	rankVirtual:     "the only exporter here is a virtual machine's display device, in system memory",
	rankUDMABuf:     "no GPU and no dma-heap here: udmabuf exports system memory",
	rankTest:        "no GPU here: vgem, a test driver, exports system memory",
	rankHeap:        "no GPU here: the dma-heap exports system memory without a limit of its own",
	rankGPUSystem:   "no GPU with memory of its own here: a GPU's driver exports system memory",
	rankGPU:         "a GPU's dumb buffers: the driver decides where they lie",
	rankVRAMOnly:    "a GPU's own memory",
	rankVRAM:        "a GPU's own memory",
	rankAlternative: "a GPU's own memory, through its vendor's runtime",
	rankRuntime:     "a GPU's own memory, through its vendor's runtime",
}

var backends = []backend{drmBackend{}, heapBackend{}, udmabufBackend{}}

// candidates lists what spec can mean; "" and "auto" can mean everything.
func candidates(env Env, spec string) []candidate {
	if spec == "auto" {
		spec = ""
	}
	return discover(env, spec, spec)
}

// discover asks the families that a spec can name, for what another one means: ""
// is all that they have.
func discover(env Env, families, spec string) []candidate {
	var out []candidate
	for _, b := range slices.Concat(backends, registered(families)) {
		out = append(out, b.discover(env, spec)...)
	}
	limits := sync.OnceValue(func() []Limit { return MemoryLimits(env) })
	for i := range out {
		if out[i].Kind != KindVRAM {
			out[i].Limits = append(out[i].Limits, limits()...)
		}
	}
	return out
}

// inFamily reports whether a spec names the family or something of it.
func inFamily(spec, family string) bool {
	name, _, _ := strings.Cut(spec, ":")
	return name == family
}

// Discover lists every allocator that this build knows on this machine, the best
// for "auto" first. The list includes allocators that cannot be used, with the
// reason and what to change. Discover opens DRM nodes for a moment, to ask their
// drivers.
func Discover(env Env) []Description {
	var out []Description
	for _, c := range ranked(candidates(env, "")) {
		out = append(out, c.Description)
	}
	return out
}

// ranked sorts the available first, those by rank, and equal ones by what is
// free.
func ranked(all []candidate) []candidate {
	sort.SliceStable(all, func(i, j int) bool {
		if all[i].Available != all[j].Available {
			return all[i].Available
		}
		if all[i].rank != all[j].rank {
			return all[i].rank > all[j].rank
		}
		return all[i].room > all[j].room
	})
	return all
}

// Open opens the allocator that spec names: the Spec or an alias of a
// [Description], or "auto" for the best that works.
//
// Errors: [ErrUnknownSpec] and [ErrAmbiguousSpec] list the choices.
// [ErrUnavailable] has the reason, and the errno of a device that could not be
// opened; for "auto" it has EACCES if every device refuses this user. The caller
// closes the Allocator.
func Open(spec string, env Env) (Allocator, error) {
	all := ranked(candidates(env, spec))
	if spec == "auto" {
		return openAuto(all, env)
	}
	var found []candidate
	for _, c := range all {
		if c.Spec == spec {
			found = []candidate{c}
			break
		}
		if slices.Contains(c.Aliases, spec) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		// "cuda:0" where nothing of CUDA works: the family says why.
		family, _, _ := strings.Cut(spec, ":")
		i := slices.IndexFunc(all, func(c candidate) bool { return c.Spec == family && !c.Available })
		if i >= 0 && family != spec {
			c := all[i]
			c.Spec = spec
			return c.try(env)
		}
		return nil, specError(spec, ErrUnknownSpec, ranked(discover(env, spec, "")))
	case 1:
		return found[0].try(env)
	}
	return nil, specError(spec, ErrAmbiguousSpec, found)
}

// try opens a candidate, or says why not.
func (c candidate) try(env Env) (Allocator, error) {
	if !c.Available {
		e := &failure.Error{Op: "open allocator", Device: c.Spec, Detail: c.Why, Remedy: c.Remedy, Err: ErrUnavailable}
		if c.err != nil {
			return nil, &openError{err: c.err, text: e.Error()}
		}
		return nil, e
	}
	a, err := c.open(env, c.Description)
	if err != nil {
		return nil, &openError{err: err, text: fmt.Sprintf("open allocator on %s: %v", c.Spec, err)}
	}
	return a, nil
}

// openError is ErrUnavailable and the device's own error at once.
type openError struct {
	text string
	err  error
}

func (e *openError) Error() string        { return e.text }
func (e *openError) Unwrap() error        { return e.err }
func (e *openError) Is(target error) bool { return target == ErrUnavailable }

func openAuto(all []candidate, env Env) (Allocator, error) {
	var failed []candidate
	for _, c := range all {
		if c.Available {
			c.Why = because(c, all)
			a, err := c.try(env)
			if err == nil {
				return a, nil
			}
			c.refused(errors.Unwrap(err)) // what openError says twice of the spec
		}
		failed = append(failed, c)
	}
	return nil, noneWorks(failed)
}

// noneWorks is the error of "auto": what each answered, in one line, and the remedy
// for those that could work.
func noneWorks(all []candidate) error {
	var absent, said, locked []string
	nodes := map[string][]string{} // that may not be opened, by remedy
	refused, here := 0, 0
	for _, c := range all {
		if errors.Is(c.err, ErrNotInstalled) {
			absent = append(absent, c.Spec)
			continue
		}
		said = append(said, c.Spec+": "+strings.ReplaceAll(c.Why, "\n", "; "))
		_, answered := errno.Of(c.err)
		permission := errors.Is(c.err, fs.ErrPermission)
		if permission || answered && !errors.Is(c.err, fs.ErrNotExist) {
			here++
		}
		if !permission {
			continue
		}
		refused++
		if c.Remedy == "" || slices.Contains(nodes[c.Remedy], c.Device) {
			continue
		}
		if nodes[c.Remedy] == nil {
			locked = append(locked, c.Remedy)
		}
		nodes[c.Remedy] = append(nodes[c.Remedy], c.Device)
	}
	works := fmt.Sprintf("none of %d works", len(all))
	if len(absent) > 0 {
		works += " (not installed: " + strings.Join(absent, ", ") + ")"
	}
	e := &failure.Error{
		Op: "open allocator", Device: "auto", Detail: strings.Join(append([]string{works}, said...), "; "),
		Remedy: "load a driver (modprobe udmabuf, modprobe vgem)",
		Err:    ErrUnavailable,
	}
	if refused > 0 && refused == here {
		e.Err = noPermission{}
	}
	for i, remedy := range locked {
		locked[i] = fmt.Sprintf("for %s: %s", strings.Join(nodes[remedy], ", "), remedy)
	}
	if len(locked) > 0 {
		e.Remedy = strings.Join(locked, "; ")
	} else if refused > 0 {
		e.Remedy = "run as root"
	}
	return e
}

// noPermission is ErrUnavailable where permission is all that is missing.
type noPermission struct{}

func (noPermission) Error() string        { return ErrUnavailable.Error() + " (EACCES)" }
func (noPermission) Unwrap() error        { return unix.EACCES }
func (noPermission) Is(target error) bool { return target == ErrUnavailable }

// because explains a choice of "auto".
func because(c candidate, all []candidate) string {
	text := why[c.rank]
	if c.room == 0 {
		return text
	}
	text += fmt.Sprintf(", %s of it free", bytesize.Format(c.room))
	equals := 0
	for _, other := range all {
		if other.Available && other.rank == c.rank {
			equals++
		}
	}
	if equals > 1 {
		text += fmt.Sprintf(", the most of %d such GPUs", equals)
	}
	return text
}

// vendors are the packages of this module that register a Runtime, by the
// family of their specs.
var vendors = map[string]string{"cuda": "cuda", "rocm": "rocm", "ze": "levelzero"}

func specError(spec string, err error, choices []candidate) error {
	family, _, _ := strings.Cut(spec, ":")
	if dir := vendors[family]; dir != "" && !isRegistered(family) {
		return &failure.Error{
			Op: "open allocator", Device: strconv.Quote(spec), Detail: "this program was built without it",
			Remedy: fmt.Sprintf("import _ \"github.com/gpurdma/gpurdma/gpualloc/%s\"", dir), Err: err,
		}
	}
	ambiguous := errors.Is(err, ErrAmbiguousSpec)
	// The spec's memory may be wrong, and its device right.
	own, device, memory := sameDevice(spec, choices)
	if !ambiguous && len(own) > 0 {
		choices = own
	}
	var names []string
	for _, c := range choices {
		if !c.Available && !ambiguous {
			continue
		}
		var about []string
		if c.Driver != "" && !strings.Contains(c.Spec, c.Driver) {
			about = append(about, c.Driver)
		}
		if ambiguous && c.PCI != nil {
			about = append(about, c.PCI.String())
		}
		name := c.Spec
		if len(about) > 0 {
			name += " (" + strings.Join(about, ", ") + ")"
		}
		names = append(names, name)
	}
	remedy := "use auto, or one of: " + strings.Join(names, ", ")
	if ambiguous || len(own) > 0 {
		remedy = "use one of: " + strings.Join(names, ", ")
	} else if len(names) == 0 {
		remedy = "none works on this machine: `dmabuf-reg devices` says why"
	}
	e := &failure.Error{Op: "open allocator", Device: strconv.Quote(spec), Remedy: remedy, Err: err}
	if name, ok := strings.CutPrefix(spec, "drm:"); ok && !ambiguous && uuid.MatchString(name) {
		e.Detail = "DRM knows no UUIDs, only nodes, drivers and PCI addresses: a GPU's UUID is its vendor's (cuda, rocm, ze)"
	}
	if len(own) > 0 && !ambiguous {
		e.Detail = fmt.Sprintf("%s has no memory called %q", device, memory)
	}
	return e
}

// sameDevice are the available ones of the choices that have the device of a spec with
// a memory, "drm:renderD128/system", and the two apart.
func sameDevice(spec string, choices []candidate) (own []candidate, device, memory string) {
	device, memory, ok := strings.Cut(spec, "/")
	if !ok {
		return nil, "", ""
	}
	for _, c := range choices {
		if c.Available && slices.ContainsFunc(append([]string{c.Spec}, c.Aliases...), func(name string) bool {
			d, _, _ := strings.Cut(name, "/")
			return d == device
		}) {
			own = append(own, c)
		}
	}
	return own, device, memory
}

// uuid is what the vendors call a GPU: "GPU-0123456789abcdef",
// "01234567-89ab-cdef-0123-456789abcdef".
var uuid = regexp.MustCompile(`^(?i:(GPU|MIG)-[0-9a-f-]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(/.*)?$`)
