// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/abicheck"
)

// same are the structures of verbs_abi.h with the fields that must lie where
// verbs.h has them.
var same = []abicheck.Twin{
	{Ours: "vb_device_attr", Theirs: "ibv_device_attr", Whole: true, Fields: "fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt"},
	{Ours: "vb_port_attr", Theirs: "ibv_port_attr", Fields: "state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width active_speed phys_state link_layer flags port_cap_flags2"},
	{Ours: "vb_gid_entry", Theirs: "ibv_gid_entry", Whole: true, Fields: "gid gid_index port_num gid_type ndev_ifindex"},
	{Ours: "vb_pd", Theirs: "ibv_pd", Whole: true, Fields: "context handle"},
	{Ours: "vb_mr", Theirs: "ibv_mr", Whole: true, Fields: "context pd addr length handle lkey rkey"},
	{Ours: "vb_ah", Theirs: "ibv_ah", Whole: true, Fields: "context pd handle"},
	{Ours: "vb_mw", Theirs: "ibv_mw", Whole: true, Fields: "context pd rkey handle type"},
	{Ours: "vb_mw_bind_info", Theirs: "ibv_mw_bind_info", Whole: true, Fields: "mr addr length mw_access_flags"},
	{Ours: "vb_mw_bind", Theirs: "ibv_mw_bind", Whole: true, Fields: "wr_id send_flags bind_info"},
	{Ours: "vb_comp_channel", Theirs: "ibv_comp_channel", Whole: true, Fields: "context fd refcnt"},
	{Ours: "vb_srq", Theirs: "ibv_srq", Fields: "context srq_context pd handle"},
	{Ours: "vb_srq_attr", Theirs: "ibv_srq_attr", Whole: true, Fields: "max_wr max_sge srq_limit"},
	{Ours: "vb_srq_init_attr", Theirs: "ibv_srq_init_attr", Whole: true, Fields: "srq_context attr"},
	{Ours: "vb_grh", Theirs: "ibv_grh", Whole: true, Fields: "version_tclass_flow paylen next_hdr hop_limit sgid dgid"},
	{Ours: "vb_async_event", Theirs: "ibv_async_event", Whole: true, Fields: "element.cq element.qp element.srq element.port_num event_type"},
	{Ours: "vb_cq", Theirs: "ibv_cq", Fields: "context channel cq_context handle cqe"},
	{Ours: "vb_qp", Theirs: "ibv_qp", Whole: true, Fields: "context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond events_completed"},
	{Ours: "vb_qp_ex", Theirs: "ibv_qp_ex", Fields: "qp_base comp_mask wr_id wr_flags wr_atomic_cmp_swp wr_send wr_send_tso wr_set_sge_list wr_start wr_complete wr_abort wr_atomic_write"},
	{Ours: "vb_qp_init_attr_ex", Theirs: "ibv_qp_init_attr_ex", Whole: true, Fields: "qp_context send_cq recv_cq srq cap qp_type sq_sig_all comp_mask pd xrcd create_flags max_tso_header rwq_ind_tbl rx_hash_conf source_qpn send_ops_flags"},
	{Ours: "vb_device_attr_ex", Theirs: "ibv_device_attr_ex", Fields: "orig_attr comp_mask odp_caps completion_timestamp_mask hca_core_clock device_cap_flags_ex"},
	{Ours: "vb_qp_cap", Theirs: "ibv_qp_cap", Whole: true, Fields: "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data"},
	{Ours: "vb_qp_init_attr", Theirs: "ibv_qp_init_attr", Whole: true, Fields: "qp_context send_cq recv_cq srq cap qp_type sq_sig_all"},
	{Ours: "vb_global_route", Theirs: "ibv_global_route", Whole: true, Fields: "dgid=dgid flow_label sgid_index hop_limit traffic_class"},
	{Ours: "vb_ah_attr", Theirs: "ibv_ah_attr", Whole: true, Fields: "grh dlid sl src_path_bits static_rate is_global port_num"},
	{Ours: "vb_qp_attr", Theirs: "ibv_qp_attr", Whole: true, Fields: "qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout rate_limit"},
	{Ours: "vb_sge", Theirs: "ibv_sge", Whole: true, Fields: "addr length lkey"},
	{Ours: "vb_send_wr", Theirs: "ibv_send_wr", Whole: true, Fields: "wr_id next sg_list num_sge opcode send_flags imm_data wr.rdma.remote_addr wr.rdma.rkey wr.atomic.remote_addr wr.atomic.compare_add wr.atomic.swap wr.atomic.rkey wr.ud.ah wr.ud.remote_qpn wr.ud.remote_qkey qp_type=qp_type invalidate_rkey bind_mw.mw bind_mw.rkey bind_mw.bind_info"},
	{Ours: "vb_recv_wr", Theirs: "ibv_recv_wr", Whole: true, Fields: "wr_id next sg_list num_sge"},
	{Ours: "vb_wc", Theirs: "ibv_wc", Whole: true, Fields: "wr_id status opcode vendor_err byte_len imm_data invalidated_rkey qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits"},
	{Ours: "vb_context_ops", Theirs: "ibv_context_ops", Whole: true, Fields: "alloc_mw bind_mw dealloc_mw poll_cq req_notify_cq post_srq_recv post_send post_recv compat_async_event=_compat_async_event"},
	{Ours: "vb_context", Theirs: "ibv_context", Whole: true, Fields: "device ops cmd_fd async_fd num_comp_vectors mutex abi_compat"},
}

// numbers are constants of ours, in C or Go, with verbs.h's expression.
var numbers = map[string]string{
	"VB_ACCESS_OPTIONAL_RANGE": "IBV_ACCESS_OPTIONAL_RANGE",
	"VB_REREG_MR_CHANGE_PD":    "IBV_REREG_MR_CHANGE_PD", "VB_REREG_MR_CHANGE_ACCESS": "IBV_REREG_MR_CHANGE_ACCESS",
	"VB_QP_STATE": "IBV_QP_STATE", "VB_QP_ACCESS_FLAGS": "IBV_QP_ACCESS_FLAGS", "VB_QP_PKEY_INDEX": "IBV_QP_PKEY_INDEX",
	"VB_QP_CUR_STATE": "IBV_QP_CUR_STATE", "VB_QP_EN_SQD_ASYNC_NOTIFY": "IBV_QP_EN_SQD_ASYNC_NOTIFY", "VB_QP_QKEY": "IBV_QP_QKEY",
	"VB_SRQ_MAX_WR": "IBV_SRQ_MAX_WR", "VB_SRQ_LIMIT": "IBV_SRQ_LIMIT", "VB_MW_TYPE_1": "IBV_MW_TYPE_1", "VB_MW_TYPE_2": "IBV_MW_TYPE_2",
	"VB_WR_BIND_MW": "IBV_WR_BIND_MW", "VB_WR_ATOMIC_WRITE": "IBV_WR_ATOMIC_WRITE", "VB_QP_EX_WITH_ATOMIC_WRITE": "IBV_QP_EX_WITH_ATOMIC_WRITE",
	"VB_QP_INIT_ATTR_PD": "IBV_QP_INIT_ATTR_PD", "VB_QP_INIT_ATTR_SEND_OPS_FLAGS": "IBV_QP_INIT_ATTR_SEND_OPS_FLAGS",
	"VB_QP_EX_WITH_CLASSIC": "(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV)",
	"VB_QP_PORT":            "IBV_QP_PORT", "VB_QP_AV": "IBV_QP_AV", "VB_QP_PATH_MTU": "IBV_QP_PATH_MTU", "VB_QP_TIMEOUT": "IBV_QP_TIMEOUT",
	"VB_QP_RETRY_CNT": "IBV_QP_RETRY_CNT", "VB_QP_RNR_RETRY": "IBV_QP_RNR_RETRY", "VB_QP_RQ_PSN": "IBV_QP_RQ_PSN",
	"VB_QP_MAX_QP_RD_ATOMIC": "IBV_QP_MAX_QP_RD_ATOMIC", "VB_QP_MIN_RNR_TIMER": "IBV_QP_MIN_RNR_TIMER", "VB_QP_SQ_PSN": "IBV_QP_SQ_PSN",
	"VB_QP_MAX_DEST_RD_ATOMIC": "IBV_QP_MAX_DEST_RD_ATOMIC", "VB_QP_DEST_QPN": "IBV_QP_DEST_QPN",
}

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
	m := map[string]string{
		"VB_QP_EX_WITH_FLUSH": "IBV_QP_EX_WITH_FLUSH", "VB_WR_FLUSH": "IBV_WR_FLUSH",
		"VB_FLUSH_RANGE": "IBV_FLUSH_RANGE", "VB_FLUSH_MR": "IBV_FLUSH_MR",
	}
	for v, theirs := range map[uint64]string{
		uint64(OpFlush): "IBV_WR_FLUSH", uint64(WCOpFlush): "IBV_WC_FLUSH",
		uint64(AccessFlushGlobal): "IBV_ACCESS_FLUSH_GLOBAL", uint64(AccessFlushPersistent): "IBV_ACCESS_FLUSH_PERSISTENT",
		uint64(FlushGlobal): "IBV_FLUSH_GLOBAL", uint64(FlushPersistent): "IBV_FLUSH_PERSISTENT",
	} {
		m[fmt.Sprintf("%dull /* %s */", v, theirs)] = theirs
	}
	return m
}

// goLayout are the structures that Go fills itself, against verbs_abi.h.
func goLayout() map[string]uintptr {
	var sge abiSGE
	var send abiSendWR
	var recv abiRecvWR
	var wc abiWC
	return map[string]uintptr{
		"sizeof(struct vb_sge)": unsafe.Sizeof(sge), "offsetof(struct vb_sge, addr)": unsafe.Offsetof(sge.addr),
		"offsetof(struct vb_sge, length)": unsafe.Offsetof(sge.length), "offsetof(struct vb_sge, lkey)": unsafe.Offsetof(sge.lkey),

		"sizeof(struct vb_send_wr)": unsafe.Sizeof(send), "offsetof(struct vb_send_wr, wr_id)": unsafe.Offsetof(send.wrID),
		"offsetof(struct vb_send_wr, next)": unsafe.Offsetof(send.next), "offsetof(struct vb_send_wr, sg_list)": unsafe.Offsetof(send.sgList),
		"offsetof(struct vb_send_wr, num_sge)": unsafe.Offsetof(send.numSGE), "offsetof(struct vb_send_wr, opcode)": unsafe.Offsetof(send.opcode),
		"offsetof(struct vb_send_wr, send_flags)": unsafe.Offsetof(send.sendFlags), "offsetof(struct vb_send_wr, imm_data)": unsafe.Offsetof(send.imm),
		"offsetof(struct vb_send_wr, wr.rdma.remote_addr)": unsafe.Offsetof(send.remoteAddr), "offsetof(struct vb_send_wr, wr.rdma.rkey)": unsafe.Offsetof(send.rkey),
		"offsetof(struct vb_send_wr, wr.atomic.compare_add)": unsafe.Offsetof(send.rkey), "offsetof(struct vb_send_wr, wr.atomic.swap)": unsafe.Offsetof(send.swap),
		"offsetof(struct vb_send_wr, wr.ud.ah)": unsafe.Offsetof(send.remoteAddr), "offsetof(struct vb_send_wr, wr.ud.remote_qpn)": unsafe.Offsetof(send.rkey),
		"offsetof(struct vb_send_wr, wr.ud.remote_qkey)": unsafe.Offsetof(send.rkey) + unsafe.Sizeof(send.rkey[0]),
		"offsetof(struct vb_send_wr, wr.atomic.rkey)":    unsafe.Offsetof(send.atomicRKey),

		"sizeof(struct vb_recv_wr)": unsafe.Sizeof(recv), "offsetof(struct vb_recv_wr, wr_id)": unsafe.Offsetof(recv.wrID),
		"offsetof(struct vb_recv_wr, next)": unsafe.Offsetof(recv.next), "offsetof(struct vb_recv_wr, sg_list)": unsafe.Offsetof(recv.sgList),
		"offsetof(struct vb_recv_wr, num_sge)": unsafe.Offsetof(recv.numSGE),

		"sizeof(struct vb_wc)": unsafe.Sizeof(wc), "offsetof(struct vb_wc, wr_id)": unsafe.Offsetof(wc.wrID), "offsetof(struct vb_wc, status)": unsafe.Offsetof(wc.status),
		"offsetof(struct vb_wc, opcode)": unsafe.Offsetof(wc.opcode), "offsetof(struct vb_wc, vendor_err)": unsafe.Offsetof(wc.vendorErr),
		"offsetof(struct vb_wc, byte_len)": unsafe.Offsetof(wc.byteLen), "offsetof(struct vb_wc, imm_data)": unsafe.Offsetof(wc.imm),
		"offsetof(struct vb_wc, qp_num)": unsafe.Offsetof(wc.qpNum), "offsetof(struct vb_wc, src_qp)": unsafe.Offsetof(wc.srcQP),
		"offsetof(struct vb_wc, wc_flags)": unsafe.Offsetof(wc.wcFlags), "offsetof(struct vb_wc, pkey_index)": unsafe.Offsetof(wc.pkeyIndex),
		"offsetof(struct vb_wc, slid)": unsafe.Offsetof(wc.slid), "offsetof(struct vb_wc, sl)": unsafe.Offsetof(wc.sl),
		"offsetof(struct vb_wc, dlid_path_bits)": unsafe.Offsetof(wc.dlidBits),
	}
}

// A C program of assertions, compiled with libibverbs' own header. It need not
// run.
func TestLayoutAgainstVerbsH(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	headers := abicheck.Headers{Files: []string{"infiniband/verbs.h", "rdma/ib_user_verbs.h"}, Flags: []string{"-Wall", "-I", dir}, Package: "libibverbs-dev"}
	var a abicheck.Assertions
	a.AddTwins(same)
	for ours, theirs := range numbers {
		a.Add(ours + " == " + theirs)
	}
	for ours, theirs := range goNumbers() {
		a.Add(ours + " == " + theirs)
	}
	for expr, v := range goLayout() {
		a.Add(fmt.Sprintf("%s == %d", expr, v))
	}
	for _, f := range []string{"query_device_ex", "open_qp", "create_qp_ex", "close_xrcd", "sz"} {
		const before = "offsetof(struct %s, context) - offsetof(struct %[1]s, %s)"
		a.Add(fmt.Sprintf(before, "vb_verbs_context", f) + " == " + fmt.Sprintf(before, "verbs_context", f))
	}
	// Names that headers in use lack are compared where there are any.
	if headers.Have(t, "wr_flush") {
		a.AddTwins([]abicheck.Twin{{Ours: "vb_qp_ex", Theirs: "ibv_qp_ex", Fields: "wr_flush"}})
		for ours, theirs := range flushNumbers() {
			a.Add(ours + " == " + theirs)
		}
	} else {
		t.Log("this verbs.h has no FLUSH, which came with rdma-core 45")
	}
	if headers.Have(t, "IB_UVERBS_DEVICE_ATOMIC_WRITE") {
		for _, c := range []string{"ATOMIC_WRITE", "FLUSH_GLOBAL", "FLUSH_PERSISTENT"} {
			a.Add("VB_DEVICE_" + c + " == IB_UVERBS_DEVICE_" + c)
		}
	} else {
		t.Log("these kernel headers have no device flags of ATOMIC WRITE and FLUSH, which came with Linux 6.2")
	}
	// What libibverbs may write must fit what we pass.
	a.Add("sizeof(struct vb_device_attr_ex) >= sizeof(struct ibv_device_attr_ex)")
	a.Add("sizeof(struct vb_port_attr) >= sizeof(struct ibv_port_attr)")
	a.Hold(t, headers, "verbs_abi.h")
}
