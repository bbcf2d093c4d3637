// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// findings picks causes of refusals by the rules of the exporters' drivers. It remembers a
// cause for a second, because many equal refusals may follow each other. It is not
// for several goroutines at once.
type findings struct {
	machine refusal.Machine
	seen    map[findingKey]remembered
}

type findingKey struct {
	errno                           unix.Errno
	exporter, module, nic, function string
	atPin, noPeer                   bool
	attached                        string
}

type remembered struct {
	finding refusal.Finding
	picked  bool
	read    time.Time
}

// findingAge is how long a finding is remembered.
const findingAge = time.Second

// maxFindings bounds the refusals that are remembered.
const maxFindings = 256

func newFindings(m refusal.Machine) *findings {
	return &findings{machine: m, seen: map[findingKey]remembered{}}
}

// of picks the cause of a refusal by the exporter, nil if there is none. attached are
// the other importers that the tracer has seen on the buffer: where there are some, of
// does not pick a cause that requires that there are none.
func (f *findings) of(r *Record, attached []string) *refusal.Finding {
	step, ok := r.refusing()
	if f == nil || !ok || r.Buffer == nil {
		return nil
	}
	key := findingKey{
		errno: step.Err, exporter: r.Buffer.Exporter, module: r.Buffer.Driver, nic: r.RDMADevice,
		attached: strings.Join(attached, " "),
	}
	peer := placement.AnswerUnknown
	if i := r.Importer; i != nil {
		key.function, peer = i.PCI, i.PeerAllowed
	}
	key.noPeer = peer == placement.No
	switch step.stage {
	case abi.FuncExporterAttach, abi.FuncAttach:
		if step.Err == unix.EINVAL || step.Err == unix.EBUSY {
			return nil
		}
	case abi.FuncExporterPin, abi.FuncPin:
		if key.atPin = true; peer == placement.Yes {
			return nil
		}
	case abi.FuncExporterMap, abi.FuncMap:
	default:
		return nil
	}
	seen, known := f.seen[key]
	if !known || time.Since(seen.read) >= findingAge {
		ev := refusal.Evidence{
			Errno: key.errno, Exporter: key.exporter, Module: key.module, NIC: key.nic, Function: key.function,
			AtPin: key.atPin, NoPeer: key.noPeer, Attached: attached, Machine: f.machine,
		}
		seen.finding, seen.picked = ev.Find()
		seen.read = time.Now()
		if len(f.seen) >= maxFindings {
			clear(f.seen)
		}
		f.seen[key] = seen
	}
	if !seen.picked || seen.finding.Cause == refusal.Open {
		return nil
	}
	return &seen.finding
}
