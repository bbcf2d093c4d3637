/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of verbs_abi.h, which includes this, that has work requests,
 * completions and events.
 */
#ifndef GPURDMA_VERBS_ABI_WR_H
#define GPURDMA_VERBS_ABI_WR_H

/* struct ibv_sge */
struct vb_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

/* struct ibv_send_wr; of its trailing unions those for XRC and TSO are left out. */
struct vb_send_wr {
	uint64_t wr_id;
	struct vb_send_wr *next;
	struct vb_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned int send_flags;
	union {
		uint32_t imm_data; /* big endian */
		uint32_t invalidate_rkey;
	};
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct vb_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	uint32_t qp_type;
	struct {
		struct vb_mw *mw;
		uint32_t rkey;
		struct vb_mw_bind_info bind_info;
	} bind_mw;
};

/* enum ibv_wr_opcode, as far as C names them */
enum { VB_WR_BIND_MW = 8 };

/* struct ibv_recv_wr */
struct vb_recv_wr {
	uint64_t wr_id;
	struct vb_recv_wr *next;
	struct vb_sge *sg_list;
	int num_sge;
};

/* struct ibv_wc */
struct vb_wc {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	union {
		uint32_t imm_data; /* big endian */
		uint32_t invalidated_rkey;
	};
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

/* struct ibv_grh */
struct vb_grh {
	uint32_t version_tclass_flow; /* big endian */
	uint16_t paylen;
	uint8_t next_hdr;
	uint8_t hop_limit;
	uint8_t sgid[16];
	uint8_t dgid[16];
};

/* struct ibv_async_event; element names an object or a port */
struct vb_async_event {
	union {
		struct vb_cq *cq;
		struct vb_qp *qp;
		struct vb_srq *srq;
		void *object;
		int port_num;
	} element;
	int event_type;
};

#endif
