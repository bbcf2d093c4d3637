/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of verbs_abi.h, which includes this, that has the extended
 * interfaces: ibv_wr_post(3), ibv_create_qp_ex(3), ibv_query_device_ex(3).
 */
#ifndef GPURDMA_VERBS_ABI_EX_H
#define GPURDMA_VERBS_ABI_EX_H

/* struct ibv_qp_ex: functions that are not called are void. */
struct vb_qp_ex {
	struct vb_qp qp_base;
	uint64_t comp_mask;
	uint64_t wr_id;
	unsigned int wr_flags;
	void *wr_atomic_cmp_swp;
	void *wr_atomic_fetch_add;
	void *wr_bind_mw;
	void *wr_local_inv;
	void *wr_rdma_read;
	void *wr_rdma_write;
	void *wr_rdma_write_imm;
	void *wr_send;
	void *wr_send_imm;
	void *wr_send_inv;
	void *wr_send_tso;
	void *wr_set_ud_addr;
	void *wr_set_xrc_srqn;
	void *wr_set_inline_data;
	void *wr_set_inline_data_list;
	void *wr_set_sge;
	void *wr_set_sge_list;
	void (*wr_start)(struct vb_qp_ex *);
	int (*wr_complete)(struct vb_qp_ex *);
	void (*wr_abort)(struct vb_qp_ex *);
	void (*wr_atomic_write)(struct vb_qp_ex *, uint32_t rkey,
				uint64_t remote_addr, const void *value);
	/* since rdma-core 45: readable only if the queue pair has FLUSH */
	void (*wr_flush)(struct vb_qp_ex *, uint32_t rkey, uint64_t remote_addr,
			 size_t len, uint8_t type, uint8_t level);
};

/* struct ibv_qp_init_attr_ex */
struct vb_qp_init_attr_ex {
	void *qp_context;
	struct vb_cq *send_cq;
	struct vb_cq *recv_cq;
	struct vb_srq *srq;
	struct vb_qp_cap cap;
	int qp_type;
	int sq_sig_all;
	uint32_t comp_mask;
	struct vb_pd *pd;
	void *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	void *rwq_ind_tbl;
	struct {
		uint8_t function;
		uint8_t key_len;
		uint8_t *key;
		uint64_t fields_mask;
	} rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};

/*
 * enum ibv_qp_init_attr_mask, enum ibv_qp_create_send_ops_flags, enum
 * ibv_wr_opcode, enum ibv_selectivity_level
 */
enum {
	VB_QP_INIT_ATTR_PD = 1 << 0,
	VB_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6,
	/* WRITE, SEND, READ, atomics, invalidation: what ibv_post_send has */
	VB_QP_EX_WITH_CLASSIC = 0x3ff,
	VB_QP_EX_WITH_FLUSH = 1 << 11,
	VB_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
	VB_WR_FLUSH = 14,
	VB_WR_ATOMIC_WRITE = 15,
	VB_FLUSH_RANGE = 0,
	VB_FLUSH_MR = 1,
};

/* struct ibv_device_attr_ex, as far as it is read */
struct vb_device_attr_ex {
	struct vb_device_attr orig_attr;
	uint32_t comp_mask;
	struct {
		uint64_t general_caps;
		uint32_t transport_caps[3];
	} odp_caps;
	uint64_t completion_timestamp_mask;
	uint64_t hca_core_clock;
	uint64_t device_cap_flags_ex;
	uint64_t more[64];
};

/* enum ib_uverbs_device_cap_flags of rdma/ib_user_verbs.h, since Linux 6.2 */
#define VB_DEVICE_FLUSH_GLOBAL (1ull << 38)
#define VB_DEVICE_FLUSH_PERSISTENT (1ull << 39)
#define VB_DEVICE_ATOMIC_WRITE (1ull << 40)

/* The end of struct verbs_context, which grows at its beginning. */
struct vb_verbs_context {
	int (*query_device_ex)(struct vb_context *, const void *input,
			       struct vb_device_attr_ex *, size_t size);
	void *destroy_flow;
	void *placeholder2;
	void *create_flow;
	void *placeholder1;
	void *open_qp;
	struct vb_qp *(*create_qp_ex)(struct vb_context *,
				      struct vb_qp_init_attr_ex *);
	void *get_srq_num;
	void *create_srq_ex;
	void *open_xrcd;
	void *close_xrcd;
	uint64_t placeholder3;
	size_t sz;
	struct vb_context context;
};

#endif
