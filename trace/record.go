// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Call is what a record is about.
type Call string

// The calls.
const (
	RegDMABufMR Call = "REG_DMABUF_MR" // UVERBS_METHOD_REG_DMABUF_MR, ibv_reg_dmabuf_mr
	RegMR       Call = "REG_MR"        // UVERBS_METHOD_REG_MR with a descriptor (Linux 6.17)
	ReregMR     Call = "REREG_MR"      // ibv_rereg_mr
	// UVERBS_METHOD_REREG_DMABUF_MR of kernel/patches/rdma-rereg: the MR of an earlier record, with its
	// keys, on another buffer.
	ReregDMABufMR Call = "REREG_DMABUF_MR"

	Attachment Call = "attach" // another importer's dma_buf_dynamic_attach
	Mapping    Call = "map"    // a mapping whose attachment was not seen
	Found      Call = "found"  // was there when tracing began
)

var calls = map[uint32]Call{
	abi.KindRegDMABuf: RegDMABufMR, abi.KindRegMR: RegMR, abi.KindRereg: ReregMR, abi.KindReregDMABuf: ReregDMABufMR,
	abi.KindAttach: Attachment, abi.KindUmem: Attachment, abi.KindMap: Mapping, abi.KindInventory: Found,
}

// Mode is how an importer holds a buffer.
type Mode string

// The modes.
const (
	ModeUnknown   Mode = ""
	ModeStatic    Mode = "static"    // no operations: the exporter keeps the buffer in place
	ModePinned    Mode = "pinned"    // kept in place, not revocable
	ModeRevocable Mode = "revocable" // kept in place until revoked
	ModeDynamic   Mode = "dynamic"   // may move; the importer maps it again
)

// Buffer is the dma-buf of a record.
type Buffer struct {
	Inode    uint64 `json:"inode"` // its identity until the machine reboots
	Size     uint64 `json:"size"`  // bytes
	Exporter string `json:"exporter"`
	Driver   string `json:"driver,omitempty"` // the exporting module, "" for a built-in one
	Movable  bool   `json:"movable"`          // the exporter has a pin operation, so it may move what is not pinned
	NIC      bool   `json:"nic,omitempty"`    // memory of an RDMA device's own (UVERBS_OBJECT_DMABUF, Linux 7.0 and later)
}

// nicExporter is the exporter's name of memory of an RDMA device's own.
const nicExporter = "ib_uverbs"

// Importer is the device that a buffer is attached to.
type Importer struct {
	Device      string           `json:"device"`         // "mlx5_core.rdma.0", "rxe_dmabuf"
	Bus         string           `json:"bus,omitempty"`  // "pci", "platform"
	PCI         string           `json:"pci,omitempty"`  // its function, or that of an ancestor
	IsPCI       bool             `json:"is_pci"`         // the device itself is the function: only then the kernel considers peer-to-peer
	Mode        Mode             `json:"mode,omitempty"` // pinned, dynamic, …
	Operations  string           `json:"operations,omitempty"`
	Module      string           `json:"module,omitempty"` // that the operations belong to
	PeerAllowed placement.Answer `json:"peer2peer"`        // after the exporter's attach; never proof
	PeerWanted  placement.Answer `json:"allow_peer2peer"`  // as the importer asked for
	IOMMU       string           `json:"iommu"`            // "none", "IOMMU", "unknown"
}

// MR is the memory region that a registration made.
type MR struct {
	Number uint32 `json:"number"` // mrn of `rdma resource show mr`
	LKey   uint32 `json:"lkey"`
	RKey   uint32 `json:"rkey"`
	IOVA   uint64 `json:"iova"`
	Length uint64 `json:"length"`
	PD     uint32 `json:"pd"` // pdn
}

// Step is the return of a kernel function in the call.
type Step struct {
	Function string        `json:"function"`
	Err      unix.Errno    `json:"errno,omitempty"` // 0: it succeeded
	At       time.Duration `json:"at_ns"`           // since the call began
	Note     string        `json:"note,omitempty"`

	stage uint8
}

// Record is one registration, or one attachment that no registration made.
// The values that a Tracer hands out are copies.
type Record struct {
	ID     uint64 `json:"id"`
	Call   Call   `json:"call"`
	Use    Use    `json:"use,omitempty"` // the purpose of the attachment
	PID    int    `json:"pid"`           // in the initial PID namespace
	TID    int    `json:"tid"`
	Comm   string `json:"comm"`
	Cgroup uint64 `json:"cgroup,omitempty"` // the cgroup's inode

	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration_ns"`
	Errno    unix.Errno    `json:"errno,omitempty"` // 0: the call succeeded

	RDMADevice string `json:"rdma_device,omitempty"` // "rxe0"
	FD         int    `json:"fd"`                    // -1: not known
	Offset     uint64 `json:"offset"`                // asked for, in bytes
	Length     uint64 `json:"length"`
	IOVA       uint64 `json:"iova"`
	Access     uint32 `json:"access"` // IBV_ACCESS_…
	ArgsKnown  bool   `json:"args_known"`

	Buffer   *Buffer   `json:"buffer,omitempty"`
	Importer *Importer `json:"importer,omitempty"`
	MR       *MR       `json:"mr,omitempty"` // nil if there is none, or if it was not seen

	Placement placement.Placement `json:"placement"`
	// Unreachable says that the kernel found no way for peer-to-peer between
	// the two devices, "" if it was not seen looking or found one.
	Unreachable string `json:"unreachable,omitempty"`
	// DemotedBy is the other importer of the buffer that may not use
	// peer-to-peer, if the bytes are in system memory and this importer might
	// have had them behind a BAR.
	DemotedBy string `json:"demoted_by,omitempty"`
	Entries   int    `json:"entries"` // of the scatter list
	Ranges    int    `json:"ranges"`  // after merging neighbours
	Steps     []Step `json:"steps"`

	Pinned     bool      `json:"pinned"`
	CPUMapped  bool      `json:"cpu_mapped,omitempty"` // the importer reads by CPU (dma_buf_vmap)
	Moves      int       `json:"moves,omitempty"`
	Ended      string    `json:"ended,omitempty"` // "" while it lives; "deregistered", "process exit", …
	EndedAt    time.Time `json:"ended_at,omitzero"`
	Existed    bool      `json:"existed,omitempty"`    // before tracing began
	Outside    bool      `json:"outside,omitempty"`    // by a process that the filters leave out: another importer of a buffer that is followed
	Incomplete []string  `json:"incomplete,omitempty"` // the facts that are not known, and why

	driverOp placement.Answer // the driver has reg_user_mr_dmabuf
	distance int32
	provider string
	detour   string // the remedy that would let peer-to-peer pass
	finding  *refusal.Finding
	demoter  string
}

// endedByExit is Record.Ended of a registration that ended with its process.
const endedByExit = "process exit"

// Failed reports whether the call was refused.
func (r *Record) Failed() bool { return r.Errno != 0 }

// Probe reports that the call only asked whether the driver registers dma-bufs:
// with descriptor -1, which is refused with EBADF where it does.
func (r *Record) Probe() bool {
	return r.FD == -1 && r.ArgsKnown && r.Errno == unix.EBADF && r.Registration()
}

const probeWords = "the descriptor was -1: the program asked only whether the driver registers dma-bufs"

// Registration reports whether the record is a registration, and not another
// importer's attachment.
func (r *Record) Registration() bool {
	return r.Call == RegDMABufMR || r.Call == RegMR || r.Call == ReregMR || r.Call == ReregDMABufMR
}

// registration reports that a record of this kind is a registration's.
func registration(kind uint32) bool {
	r := Record{Call: calls[kind]}
	return r.Registration()
}

// String describes the record in one line: the call, and its placement or the refusal.
func (r *Record) String() string {
	what := string(r.Call)
	if u := r.Use.Words(); u != "" && !r.Registration() {
		what += " for " + u
	}
	what += fmt.Sprintf(" pid %d (%s)", r.PID, r.Comm)
	if r.RDMADevice != "" {
		what += " on " + r.RDMADevice
	}
	if r.Buffer != nil {
		what += fmt.Sprintf(": %s dma-buf %d of %d bytes", r.Buffer.name(), r.Buffer.Inode, r.Buffer.Size)
	}
	if r.Failed() {
		return what + ": " + r.Explain().String()
	}
	what += ": " + r.Placement.String()
	if r.DemotedBy != "" {
		what += "; demoted by " + r.DemotedBy + ", which may not use peer-to-peer"
	}
	return what
}

func (b *Buffer) name() string {
	if b.NIC {
		return b.Exporter + " (memory of a NIC)"
	}
	if b.Driver != "" && b.Driver != b.Exporter {
		return b.Exporter + " (" + b.Driver + ")"
	}
	return b.Exporter
}

// EventKind is what happened to a record.
type EventKind string

// The kinds.
const (
	Registered EventKind = "registered"  // a registration succeeded
	Refused    EventKind = "refused"     // a registration or attachment failed
	Probed     EventKind = "probed"      // refused as the program expected: the descriptor was -1 ([Record.Probe])
	Attached   EventKind = "attached"    // another importer attached
	Mapped     EventKind = "mapped"      // mapped, or mapped again
	MapRefused EventKind = "map refused" // Errno and Steps are that mapping's
	Moved      EventKind = "moved"       // the buffer's memory moved: the placement is stale
	Unmapped   EventKind = "unmapped"    // outside of a deregistration
	Revoked    EventKind = "revoked"
	Released   EventKind = "released" // deregistered or detached
	Exported   EventKind = "exported" // a dma-buf was made (Config.Exports)
	Existing   EventKind = "existing" // found when tracing began
	GivenUp    EventKind = "given up" // lives on, but the tracer follows it no longer: too many live (Config.MaxRecords)
)

// Event is a change of a record.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   EventKind `json:"event"`
	Record Record    `json:"record"` // as it was then
}
