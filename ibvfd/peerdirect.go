// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// PeerClient is a peer-memory client: the part of a GPU driver that tells
// RDMA drivers where the memory behind its pointers is. NVIDIA's are called
// nv_mem and nv_mem_nc, AMD's amdkfd.
type PeerClient struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// peerDir is where the RDMA drivers that take such clients (MLNX_OFED, DOCA;
// not the kernel's own) list those that have registered.
const peerDir = "kernel/mm/memory_peers"

// PeerClients lists the peer-memory clients that are registered. sys is the
// root of sysfs, "" for /sys. None is no error. A client's module may be loaded
// without: the kernel's own RDMA drivers offer it nothing to register with.
func PeerClients(sys string) ([]PeerClient, error) { return peerClients(sysfs.New(sys)) }

func peerClients(s sysfs.FS) ([]PeerClient, error) {
	names, err := s.List(peerDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("list peer-memory clients", s.Path(peerDir), err)
	}
	var list []PeerClient
	for _, name := range names {
		version, err := s.ReadString(path.Join(peerDir, name, "version"))
		if err != nil {
			continue // no client: each has its version
		}
		list = append(list, PeerClient{name, version})
	}
	return list, nil
}

// registerPeer registers a device pointer.
func (r *registration) registerPeer(attr *MRAttr) error {
	c := r.pd.ctx
	clients, err := peerClients(c.sys)
	if err != nil {
		return c.refuse(attr, fault.CauseNoPeerClient, 0, err.Error(), "")
	}
	if len(clients) == 0 {
		return c.refuse(attr, fault.CauseNoPeerClient, unix.EOPNOTSUPP, idleClient(c.sys), "register the memory as a dma-buf; peer-direct needs RDMA drivers of MLNX_OFED or DOCA and the GPU driver's client (nvidia-peermem)")
	}
	if !attr.SkipChecks {
		ask := attr.request()
		if err := c.broken(attr, explain.First(explain.BadLength(&ask), badPointer(attr), explain.BadRemoteAccess(ask.Access), ownMemory(attr))); err != nil {
			return err
		}
	}
	addr := attr.Pointer + attr.Offset
	if attr.Kind == DevicePointer && attr.IOVA == 0 {
		r.iova = addr
	}
	r.peer = true
	if err := r.byAddress(attr, addr); err != nil {
		return c.explainPeer(attr, err, clients)
	}
	return nil
}

// otherwise registers the device pointer after the dma-buf was refused, if the policy
// allows it.
func (r *registration) otherwise(attr *MRAttr, refused *RegError) error {
	if r.over != nil || attr.Policy != RouteAutoPeerDirect || !errors.Is(refused, errors.ErrUnsupported) {
		return refused
	}
	if err := r.registerPeer(attr); err != nil {
		return errors.Join(refused, err)
	}
	return nil
}

// idleClient names a module that is loaded and has registered nothing.
func idleClient(s sysfs.FS) string {
	for _, module := range []string{"nvidia_peermem", "nv_peer_mem", "ib_peer_mem"} {
		if s.Exists(path.Join("module", module)) {
			return fmt.Sprintf("%s is loaded, but %s lists no client", module, s.Path(peerDir))
		}
	}
	return "no peer-memory client is registered"
}

func badPointer(attr *MRAttr) *explain.Breach {
	switch {
	case attr.Pointer == 0:
		return &explain.Breach{Cause: fault.CauseBadRange, Errno: unix.EINVAL, Detail: "no device pointer", Remedy: "set MRAttr.Pointer"}
	case attr.Pointer > math.MaxUint64-attr.Offset-attr.Length:
		return &explain.Breach{Cause: fault.CauseBadRange, Errno: unix.EINVAL, Detail: fmt.Sprintf("pointer %#x + offset %#x + length %#x overflows", attr.Pointer, attr.Offset, attr.Length), Remedy: "choose a range inside the allocation"}
	}
	return nil
}

// ownMemory refuses a pointer to memory of the process. ibv_reg_mr asks the clients
// only about other addresses; here it would succeed and make a host MR.
func ownMemory(attr *MRAttr) *explain.Breach {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil // then the kernel decides alone
	}
	line := mappedAt(string(maps), attr.Pointer+attr.Offset, attr.Length)
	if line == "" {
		return nil
	}
	return &explain.Breach{Cause: fault.CauseFault, Errno: unix.EFAULT, Detail: "this is memory of the process, not of a device: " + line, Remedy: "register it as HostMemory"}
}

// mappedAt is the line of a /proc/PID/maps that covers a byte of the range and
// is readable memory other than a GPU driver's own mapping.
func mappedAt(maps string, addr, length uint64) string {
	for line := range strings.Lines(maps) {
		line = strings.TrimSpace(line)
		f := strings.Fields(line) // 7f00-7f10 rw-p offset dev inode path
		if len(f) < 5 || !strings.HasPrefix(f[1], "r") {
			continue
		}
		lo, hi, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(lo, 16, 64)
		end, err2 := strconv.ParseUint(hi, 16, 64)
		if err1 != nil || err2 != nil || addr >= end || addr+length <= start {
			continue
		}
		if len(f) > 5 && gpuNode(f[5]) {
			continue
		}
		return line
	}
	return ""
}

func gpuNode(file string) bool {
	return strings.HasPrefix(file, "/dev/nvidia") || strings.HasPrefix(file, "/dev/dri/") || file == "/dev/kfd"
}

// explainPeer says why ibv_reg_mr refused a device pointer.
func (c *Context) explainPeer(attr *MRAttr, err error, clients []PeerClient) *RegError {
	e := c.explainHost(attr, err)
	e.Route = RoutePeerDirect
	names := make([]string, len(clients))
	for i, p := range clients {
		names[i] = p.Name
	}
	asked := "registered: " + strings.Join(names, ", ")
	switch e.Errno {
	case unix.EFAULT:
		e.Detail = "no peer-memory client knows the pointer (" + asked + ")"
		e.Remedy = "pass a pointer of the GPU's own allocator that has not been freed, or register a dma-buf"
	case unix.EINVAL:
		if e.Cause == fault.CauseUnknown {
			e.Detail = "the peer-memory client refused (" + asked + ")"
			e.Remedy = "see the kernel log: the client may be built for another RDMA driver"
		}
	}
	return e
}
