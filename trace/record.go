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
	Inode    uint64 `json:"inode"`            // the identity of the dma-buf until the machine reboots
	Size     uint64 `json:"size"`             // the bytes
	Exporter string `json:"exporter"`         // the name of the exporter
	Driver   string `json:"driver,omitempty"` // the exporting module; a built-in one has none
	Movable  bool   `json:"movable"`          // the exporter has a pin operation, so it may move what is not pinned
	NIC      bool   `json:"nic,omitempty"`    // memory of an RDMA device's own (UVERBS_OBJECT_DMABUF, Linux 7.0 and later)
}

// nicExporter is the exporter's name of memory of an RDMA device's own.
const nicExporter = "ib_uverbs"

// Importer is the device that a buffer is attached to.
type Importer struct {
	Device string `json:"device"`        // the name of the device: "mlx5_core.rdma.0", "rxe_dmabuf"
	Bus    string `json:"bus,omitempty"` // the bus of the device: "pci", "platform"
	PCI    string `json:"pci,omitempty"` // the PCI address of its function, or of that of an ancestor
	// IsPCI says that the device itself is the function: only then the kernel considers peer-to-peer.
	IsPCI      bool   `json:"is_pci"`
	Mode       Mode   `json:"mode,omitempty"`       // how the importer lets the exporter move the buffer
	Operations string `json:"operations,omitempty"` // the kernel's name of the importer's operations
	Module     string `json:"module,omitempty"`     // the kernel module of the operations
	// PeerAllowed is whether the exporter leaves peer-to-peer allowed after its attach; never proof.
	PeerAllowed placement.Answer `json:"peer2peer"`
	PeerWanted  placement.Answer `json:"allow_peer2peer"` // whether the importer asks for peer-to-peer; never proof
	// IOMMU says whether an IOMMU translates the device's addresses: "none", "IOMMU", "unknown".
	IOMMU string `json:"iommu"`
}

// MR is the memory region that a registration made.
type MR struct {
	Number uint32 `json:"number"` // the number in `rdma resource show mr` (mrn)
	LKey   uint32 `json:"lkey"`   // the key for work requests of this side
	RKey   uint32 `json:"rkey"`   // the key for work requests of a peer
	IOVA   uint64 `json:"iova"`   // the address by which work requests name the first byte
	Length uint64 `json:"length"` // the length in bytes
	PD     uint32 `json:"pd"`     // the number of its protection domain (pdn)
}

// Step is the return of a kernel function in the call.
type Step struct {
	Function string        `json:"function"`        // the kernel function
	Err      unix.Errno    `json:"errno,omitempty"` // the error number that it returned
	At       time.Duration `json:"at_ns"`           // when it returned, since the call began
	Note     string        `json:"note,omitempty"`  // what else was seen there

	stage uint8
}

// Record is one registration, or one attachment that no registration made.
//
// The values that a Tracer hands out are copies.
type Record struct {
	ID   uint64 `json:"id"`   // the number of the record in this trace
	Call Call   `json:"call"` // the call that made the record
	// Use is the purpose of the attachment, if it was seen; only "MR" says where an MR's bytes are.
	Use    Use    `json:"use,omitempty"`
	PID    int    `json:"pid"`              // the number of the calling process in the initial PID namespace
	TID    int    `json:"tid"`              // the number of the calling thread in the initial PID namespace
	Comm   string `json:"comm"`             // the name of the calling thread
	Cgroup uint64 `json:"cgroup,omitempty"` // the inode of the caller's cgroup

	Start    time.Time     `json:"start"`           // when the call began; of what existed before, when it was found
	Duration time.Duration `json:"duration_ns"`     // the time that the call took; 0 of what existed before
	Errno    unix.Errno    `json:"errno,omitempty"` // the error number of a call that failed

	RDMADevice string `json:"rdma_device,omitempty"` // the name of the RDMA device: "rxe0"
	FD         int    `json:"fd"`                    // the descriptor in the call; -1 if not known
	Offset     uint64 `json:"offset"`                // the offset in the buffer that the call asked for, in bytes
	Length     uint64 `json:"length"`                // the length that the call asked for, in bytes
	IOVA       uint64 `json:"iova"`                  // the IOVA that the call asked for
	Access     uint32 `json:"access"`                // the access flags of the call, IBV_ACCESS_…
	// ArgsKnown says that the arguments of the call were seen: RDMADevice, FD, Offset, Length, IOVA,
	// Access.
	ArgsKnown bool `json:"args_known"`

	Buffer   *Buffer   `json:"buffer,omitempty"`   // the dma-buf
	Importer *Importer `json:"importer,omitempty"` // the device that the buffer is attached to
	MR       *MR       `json:"mr,omitempty"`       // the memory region that was made, if it was seen

	Placement placement.Placement `json:"placement"` // where the bytes are
	// Unreachable says that the kernel found no way for peer-to-peer between the two devices. It is
	// not there if the kernel found one, or was not seen looking.
	Unreachable string `json:"unreachable,omitempty"`
	// DemotedBy is the other importer of the buffer that may not use peer-to-peer, so that the
	// exporter keeps the buffer in system memory, though this importer might have had the bytes behind
	// a BAR.
	DemotedBy string `json:"demoted_by,omitempty"`
	Entries   int    `json:"entries"` // how many entries the scatter list has
	Ranges    int    `json:"ranges"`  // how many ranges the scatter list has, after neighbours are merged
	Steps     []Step `json:"steps"`   // the kernel functions of the call, in the order of their return

	Pinned bool `json:"pinned"` // the buffer is held in place
	// CPUMapped says that the importer reads the bytes by CPU (dma_buf_vmap), as a software device
	// does.
	CPUMapped bool `json:"cpu_mapped,omitempty"`
	Moves     int  `json:"moves,omitempty"` // how often the buffer was moved
	// Ended is how the record ended: "deregistered", "detached", "process exit", "buffer released". A
	// record that lives has none.
	Ended   string    `json:"ended,omitempty"`
	EndedAt time.Time `json:"ended_at,omitzero"` // when the record ended
	Existed bool      `json:"existed,omitempty"` // it existed before tracing began
	// Outside says that a process made it that the filters leave out: another importer of a buffer
	// that is followed. --all shows it.
	Outside    bool     `json:"outside,omitempty"`
	Incomplete []string `json:"incomplete,omitempty"` // the facts of the record that are not known, and why

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
	Probed     EventKind = "probed"      // refused as the program expected: the descriptor was -1, which asks whether the driver registers dma-bufs ([Record.Probe])
	Attached   EventKind = "attached"    // another importer attached
	Mapped     EventKind = "mapped"      // mapped, or mapped again
	MapRefused EventKind = "map refused" // the record's errno and steps are that mapping's
	Moved      EventKind = "moved"       // the buffer's memory moved: the placement is stale
	Unmapped   EventKind = "unmapped"    // outside of a deregistration
	Revoked    EventKind = "revoked"     // the exporter took the memory away
	Released   EventKind = "released"    // deregistered or detached
	Exported   EventKind = "exported"    // a dma-buf was made ([Config.Exports])
	Existing   EventKind = "existing"    // found when tracing began
	GivenUp    EventKind = "given up"    // lives on, but the tracer follows it no longer: too many live ([Config.MaxRecords])
)

// Event is a change of a record.
type Event struct {
	Time time.Time `json:"time"`  // when it happened, with nanoseconds
	Kind EventKind `json:"event"` // what happened
	// Record is the record as it was then. After a refusal its errno and its steps are
	// those of the call or the mapping that was refused.
	Record Record `json:"record"`
}
