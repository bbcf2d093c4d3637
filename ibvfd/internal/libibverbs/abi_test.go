// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

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

// flushNumbers are what FLUSH adds, in rdma-core 45: Debian 12's verbs.h does not
// have them.
var flushNumbers = map[string]string{
	"VB_QP_EX_WITH_FLUSH": "IBV_QP_EX_WITH_FLUSH", "VB_WR_FLUSH": "IBV_WR_FLUSH",
	"VB_FLUSH_RANGE": "IBV_FLUSH_RANGE", "VB_FLUSH_MR": "IBV_FLUSH_MR",
}

// goLayout are the structures that Go fills itself, against verbs_abi.h.
func goLayout() map[string]uintptr {
	var sge SGE
	var send SendWR
	var recv RecvWR
	var wc WC
	return map[string]uintptr{
		"sizeof(struct vb_sge)": unsafe.Sizeof(sge), "offsetof(struct vb_sge, addr)": unsafe.Offsetof(sge.Addr),
		"offsetof(struct vb_sge, length)": unsafe.Offsetof(sge.Length), "offsetof(struct vb_sge, lkey)": unsafe.Offsetof(sge.LKey),

		"sizeof(struct vb_send_wr)": unsafe.Sizeof(send), "offsetof(struct vb_send_wr, wr_id)": unsafe.Offsetof(send.WRID),
		"offsetof(struct vb_send_wr, next)": unsafe.Offsetof(send.Next), "offsetof(struct vb_send_wr, sg_list)": unsafe.Offsetof(send.SGList),
		"offsetof(struct vb_send_wr, num_sge)": unsafe.Offsetof(send.NumSGE), "offsetof(struct vb_send_wr, opcode)": unsafe.Offsetof(send.Opcode),
		"offsetof(struct vb_send_wr, send_flags)": unsafe.Offsetof(send.SendFlags), "offsetof(struct vb_send_wr, imm_data)": unsafe.Offsetof(send.Imm),
		"offsetof(struct vb_send_wr, wr.rdma.remote_addr)": unsafe.Offsetof(send.RemoteAddr), "offsetof(struct vb_send_wr, wr.rdma.rkey)": unsafe.Offsetof(send.RKey),
		"offsetof(struct vb_send_wr, wr.atomic.compare_add)": unsafe.Offsetof(send.RKey), "offsetof(struct vb_send_wr, wr.atomic.swap)": unsafe.Offsetof(send.Swap),
		"offsetof(struct vb_send_wr, wr.ud.ah)": unsafe.Offsetof(send.RemoteAddr), "offsetof(struct vb_send_wr, wr.ud.remote_qpn)": unsafe.Offsetof(send.RKey),
		"offsetof(struct vb_send_wr, wr.ud.remote_qkey)": unsafe.Offsetof(send.RKey) + unsafe.Sizeof(send.RKey[0]),
		"offsetof(struct vb_send_wr, wr.atomic.rkey)":    unsafe.Offsetof(send.AtomicRKey),

		"sizeof(struct vb_recv_wr)": unsafe.Sizeof(recv), "offsetof(struct vb_recv_wr, wr_id)": unsafe.Offsetof(recv.WRID),
		"offsetof(struct vb_recv_wr, next)": unsafe.Offsetof(recv.Next), "offsetof(struct vb_recv_wr, sg_list)": unsafe.Offsetof(recv.SGList),
		"offsetof(struct vb_recv_wr, num_sge)": unsafe.Offsetof(recv.NumSGE),

		"sizeof(struct vb_wc)": unsafe.Sizeof(wc), "offsetof(struct vb_wc, wr_id)": unsafe.Offsetof(wc.WRID), "offsetof(struct vb_wc, status)": unsafe.Offsetof(wc.Status),
		"offsetof(struct vb_wc, opcode)": unsafe.Offsetof(wc.Opcode), "offsetof(struct vb_wc, vendor_err)": unsafe.Offsetof(wc.VendorErr),
		"offsetof(struct vb_wc, byte_len)": unsafe.Offsetof(wc.ByteLen), "offsetof(struct vb_wc, imm_data)": unsafe.Offsetof(wc.Imm),
		"offsetof(struct vb_wc, qp_num)": unsafe.Offsetof(wc.QPNum), "offsetof(struct vb_wc, src_qp)": unsafe.Offsetof(wc.SrcQP),
		"offsetof(struct vb_wc, wc_flags)": unsafe.Offsetof(wc.Flags), "offsetof(struct vb_wc, pkey_index)": unsafe.Offsetof(wc.PKeyIndex),
		"offsetof(struct vb_wc, slid)": unsafe.Offsetof(wc.SLID), "offsetof(struct vb_wc, sl)": unsafe.Offsetof(wc.SL),
		"offsetof(struct vb_wc, dlid_path_bits)": unsafe.Offsetof(wc.DLIDBits),
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
	for v, name := range map[int]string{stateInit: "QPS_INIT", stateRTR: "QPS_RTR", stateRTS: "QPS_RTS", stateSQD: "QPS_SQD"} {
		a.Add(fmt.Sprintf("%d == IBV_%s", v, name))
	}
	a.Add(fmt.Sprintf("%d == IBV_QPT_UD", typeUD))
	for v, name := range map[int]string{8: "DEVICE_FATAL", 9: "PORT_ACTIVE", 10: "PORT_ERR", 11: "LID_CHANGE", 12: "PKEY_CHANGE", 13: "SM_CHANGE", 17: "CLIENT_REREGISTER", 18: "GID_CHANGE"} {
		a.Add(fmt.Sprintf("%d == IBV_EVENT_%s", v, name))
		if !OfPort(v) {
			t.Errorf("%s is not of a port", name)
		}
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
		for ours, theirs := range flushNumbers {
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
	if headers.Have(t, "ibv_reg_mr_ex") {
		fields := "length access comp_mask iova addr fd fd_offset dmah"
		if headers.Have(t, "ibv_alloc_buf") {
			fields += " buf"
		}
		a.AddTwins([]abicheck.Twin{{Ours: "vb_mr_init_attr", Theirs: "ibv_mr_init_attr", Fields: fields}})
		for _, c := range []string{"IOVA", "ADDR", "FD", "FD_OFFSET"} {
			a.Add("VB_REG_MR_MASK_" + c + " == IBV_REG_MR_MASK_" + c)
		}
	} else {
		t.Log("this verbs.h has no ibv_reg_mr_ex, which came with rdma-core 59")
	}
	// What libibverbs may write must fit what we pass.
	a.Add("sizeof(struct vb_device_attr_ex) >= sizeof(struct ibv_device_attr_ex)")
	a.Add("sizeof(struct vb_port_attr) >= sizeof(struct ibv_port_attr)")
	a.Hold(t, headers, "verbs_abi.h")
}
