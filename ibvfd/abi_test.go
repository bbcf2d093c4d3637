// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"fmt"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/abicheck"
)

// goNumbers are our constants, with verbs.h's expressions.
func goNumbers() map[string]string {
	m := map[string]string{}
	add := func(v uint64, theirs string) { m[fmt.Sprintf("%dull /* %s */", v, theirs)] = theirs }
	for v, name := range map[Access]string{
		AccessLocalWrite: "LOCAL_WRITE", AccessRemoteWrite: "REMOTE_WRITE", AccessRemoteRead: "REMOTE_READ", AccessRemoteAtomic: "REMOTE_ATOMIC",
		AccessMWBind: "MW_BIND", AccessZeroBased: "ZERO_BASED", AccessOnDemand: "ON_DEMAND", AccessHugeTLB: "HUGETLB", AccessRelaxedOrdering: "RELAXED_ORDERING",
	} {
		add(uint64(v), "IBV_ACCESS_"+name)
	}
	for v, name := range map[Opcode]string{
		OpWrite: "RDMA_WRITE", OpWriteImm: "RDMA_WRITE_WITH_IMM", OpSend: "SEND", OpSendImm: "SEND_WITH_IMM", OpRead: "RDMA_READ",
		OpCompareSwap: "ATOMIC_CMP_AND_SWP", OpFetchAdd: "ATOMIC_FETCH_AND_ADD", OpLocalInv: "LOCAL_INV", OpSendInv: "SEND_WITH_INV", OpAtomicWrite: "ATOMIC_WRITE",
	} {
		add(uint64(v), "IBV_WR_"+name)
	}
	for v, name := range map[SendFlags]string{SendFence: "FENCE", SendSignaled: "SIGNALED", SendSolicited: "SOLICITED", SendInline: "INLINE"} {
		add(uint64(v), "IBV_SEND_"+name)
	}
	for v, name := range map[WCStatus]string{
		WCSuccess: "SUCCESS", WCLocLenErr: "LOC_LEN_ERR", WCLocQPOpErr: "LOC_QP_OP_ERR", WCLocEECOpErr: "LOC_EEC_OP_ERR", WCLocProtErr: "LOC_PROT_ERR",
		WCWRFlushErr: "WR_FLUSH_ERR", WCMWBindErr: "MW_BIND_ERR", WCBadRespErr: "BAD_RESP_ERR", WCLocAccessErr: "LOC_ACCESS_ERR",
		WCRemInvReqErr: "REM_INV_REQ_ERR", WCRemAccessErr: "REM_ACCESS_ERR", WCRemOpErr: "REM_OP_ERR", WCRetryExcErr: "RETRY_EXC_ERR",
		WCRNRRetryExcErr: "RNR_RETRY_EXC_ERR", WCLocRDDViolErr: "LOC_RDD_VIOL_ERR", WCRemInvRDReqErr: "REM_INV_RD_REQ_ERR", WCRemAbortErr: "REM_ABORT_ERR",
		WCInvEECNErr: "INV_EECN_ERR", WCInvEECStateErr: "INV_EEC_STATE_ERR", WCFatalErr: "FATAL_ERR", WCRespTimeoutErr: "RESP_TIMEOUT_ERR",
		WCGeneralErr: "GENERAL_ERR", WCTMErr: "TM_ERR", WCTMRndvIncomplete: "TM_RNDV_INCOMPLETE",
	} {
		add(uint64(v), "IBV_WC_"+name)
	}
	for v, name := range map[WCOpcode]string{
		WCOpSend: "SEND", WCOpWrite: "RDMA_WRITE", WCOpRead: "RDMA_READ", WCOpCompareSwap: "COMP_SWAP", WCOpFetchAdd: "FETCH_ADD",
		WCOpBindMW: "BIND_MW", WCOpLocalInv: "LOCAL_INV", WCOpAtomicWrite: "ATOMIC_WRITE", WCOpRecv: "RECV", WCOpRecvWriteImm: "RECV_RDMA_WITH_IMM",
	} {
		add(uint64(v), "IBV_WC_"+name)
	}
	for v, name := range map[ReregFlags]string{ReregMemory: "TRANSLATION", ReregPD: "PD", ReregAccess: "ACCESS"} {
		add(uint64(v), "IBV_REREG_MR_CHANGE_"+name)
	}
	add(uint64(AccessOptional), "IBV_ACCESS_OPTIONAL_RANGE")
	add(uint64(WCWithGRH), "IBV_WC_GRH")
	add(uint64(WCWithImm), "IBV_WC_WITH_IMM")
	add(uint64(WCWithInv), "IBV_WC_WITH_INV")
	add(uint64(MWType1), "IBV_MW_TYPE_1")
	add(uint64(MWType2), "IBV_MW_TYPE_2")
	for v, name := range map[EventType]string{
		EventCQErr: "CQ_ERR", EventQPFatal: "QP_FATAL", EventQPRequestErr: "QP_REQ_ERR", EventQPAccessErr: "QP_ACCESS_ERR", EventCommEst: "COMM_EST",
		EventSQDrained: "SQ_DRAINED", EventPathMigrated: "PATH_MIG", EventPathMigrateErr: "PATH_MIG_ERR", EventDeviceFatal: "DEVICE_FATAL",
		EventPortActive: "PORT_ACTIVE", EventPortErr: "PORT_ERR", EventLIDChange: "LID_CHANGE", EventPKeyChange: "PKEY_CHANGE", EventSMChange: "SM_CHANGE",
		EventSRQErr: "SRQ_ERR", EventSRQLimit: "SRQ_LIMIT_REACHED", EventQPLastWQE: "QP_LAST_WQE_REACHED", EventClientReregister: "CLIENT_REREGISTER",
		EventGIDChange: "GID_CHANGE", EventWQFatal: "WQ_FATAL",
	} {
		add(uint64(v), "IBV_EVENT_"+name)
	}
	for v, name := range map[QPState]string{StateReset: "RESET", StateInit: "INIT", StateRTR: "RTR", StateRTS: "RTS", StateSQD: "SQD", StateSQE: "SQE", StateErr: "ERR"} {
		add(uint64(v), "IBV_QPS_"+name)
	}
	add(uint64(RC), "IBV_QPT_RC")
	add(uint64(UD), "IBV_QPT_UD")
	add(GRHLen, "sizeof(struct ibv_grh)")
	for v, name := range map[ibdev.PortState]string{ibdev.PortDown: "DOWN", ibdev.PortInit: "INIT", ibdev.PortArmed: "ARMED", ibdev.PortActive: "ACTIVE"} {
		add(uint64(v), "IBV_PORT_"+name)
	}
	add(uint64(ibdev.LinkInfiniBand), "IBV_LINK_LAYER_INFINIBAND")
	add(uint64(ibdev.LinkEthernet), "IBV_LINK_LAYER_ETHERNET")
	add(uint64(ibdev.GIDInfiniBand), "IBV_GID_TYPE_IB")
	add(uint64(ibdev.GIDRoCEv1), "IBV_GID_TYPE_ROCE_V1")
	add(uint64(ibdev.GIDRoCEv2), "IBV_GID_TYPE_ROCE_V2")
	add(ibdev.MTUMin, "IBV_MTU_256")
	add(ibdev.MTUMax, "IBV_MTU_4096")
	return m
}

// flushNumbers are what FLUSH adds, in rdma-core 45: Debian 12's verbs.h does not
// have them.
func flushNumbers() map[string]string {
	m := map[string]string{}
	for v, theirs := range map[uint64]string{
		uint64(OpFlush): "IBV_WR_FLUSH", uint64(WCOpFlush): "IBV_WC_FLUSH",
		uint64(AccessFlushGlobal): "IBV_ACCESS_FLUSH_GLOBAL", uint64(AccessFlushPersistent): "IBV_ACCESS_FLUSH_PERSISTENT",
		uint64(FlushGlobal): "IBV_FLUSH_GLOBAL", uint64(FlushPersistent): "IBV_FLUSH_PERSISTENT",
	} {
		m[fmt.Sprintf("%dull /* %s */", v, theirs)] = theirs
	}
	return m
}

// The numbers are libibverbs'.
func TestNumbersAgainstVerbsH(t *testing.T) {
	headers := abicheck.Headers{Files: []string{"infiniband/verbs.h", "rdma/ib_user_verbs.h"}, Flags: []string{"-Wall"}, Package: "libibverbs-dev"}
	var a abicheck.Assertions
	for ours, theirs := range goNumbers() {
		a.Add(ours + " == " + theirs)
	}
	if headers.Have(t, "wr_flush") {
		for ours, theirs := range flushNumbers() {
			a.Add(ours + " == " + theirs)
		}
	} else {
		t.Log("this verbs.h has no FLUSH, which came with rdma-core 45")
	}
	a.Hold(t, headers, "stddef.h")
}
