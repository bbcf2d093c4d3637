// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/placement"
)

// outcomeOf returns the outcome that a placement proves for a GPU, and the reason.
func outcomeOf(pl placement.Placement, g drivers.GPU) (chain.Outcome, string) {
	why := pl.String()
	switch pl.Memory {
	case placement.CoherentGPUMemory:
		return chain.Direct, why
	case placement.SystemMemory, placement.Mixed, placement.Bounced:
		return chain.Staged, why
	case placement.PeerToPeer:
		for _, q := range pl.Places {
			if g.Exporter.PCI == nil || q.Device != g.Exporter.PCI.String() {
				return chain.OutcomeUnknown, why + ": that is not known to be the memory of " + g.Name
			}
		}
		if len(pl.Places) > 0 {
			return chain.Direct, why
		}
	}
	return chain.OutcomeUnknown, why
}

// asked reports whether the kernel refused the registration of the GPU's memory. It returns false if
// this module's own checks or a library refused, and if it was host memory, which the other end of the
// loopback has.
func asked(e *ibvfd.RegError) bool {
	return e.Attr.Kind != ibvfd.HostMemory && e.Errno != 0 && e.Latest >= fault.StageUverbs
}

// moved returns the steps of write and read, by the error of a verification: it belongs to one of the two
// directions, or to both.
func moved(err error, verified int64) (write, read p2p.Step) {
	good := p2p.Step{Result: p2p.ResultPass, Detail: "every byte"}
	if err == nil {
		good.Detail = fmt.Sprintf("every byte; %d compared in both directions", verified)
		return good, good
	}
	step := p2p.Step{Result: p2p.ResultUnknown, Detail: err.Error()}
	reading := false
	var transfer *canary.TransferError
	var wrong *canary.Mismatch
	switch {
	case errors.As(err, &transfer):
		step.Result, reading = p2p.ResultFail, transfer.Op == "RDMA READ"
		step.Detail = transfer.Error()
	case errors.As(err, &wrong):
		step.Result, reading = p2p.ResultFail, strings.Contains(wrong.What, "RDMA READ")
		step.Detail = wrong.Error()
	}
	if reading {
		return good, step
	}
	return step, p2p.Step{Result: p2p.ResultSkip, Detail: "not reached"}
}
