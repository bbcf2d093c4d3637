/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of libibverbs' binary interface that this package uses, declared
 * anew so that libibverbs' headers are not needed to build. Names and layouts
 * follow <infiniband/verbs.h> with the prefix vb_ for ibv_; abi_test.go
 * compares every structure, offset and constant with it.
 */
#ifndef GPURDMA_VERBS_ABI_H
#define GPURDMA_VERBS_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct vb_device; /* struct ibv_device: opaque, ibv_get_device_name reads it */
struct vb_context;

/* struct ibv_device_attr */
struct vb_device_attr {
	char fw_ver[64];
	uint64_t node_guid; /* big endian */
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	int atomic_cap; /* enum ibv_atomic_cap: 0 is none */
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

/*
 * struct ibv_port_attr. The exported ibv_query_port@IBVERBS_1.1 fills a prefix
 * of it, up to flags; verbs.h's inline wrapper fills the rest, too.
 */
struct vb_port_attr {
	int state;
	int max_mtu;
	int active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2;
	uint32_t later[8]; /* fields that newer versions append */
};

/* struct ibv_gid_entry */
struct vb_gid_entry {
	union {
		uint8_t raw[16];
		uint64_t align[2];
	} gid;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type; /* enum ibv_gid_type */
	uint32_t ndev_ifindex;
};

/* struct ibv_pd */
struct vb_pd {
	struct vb_context *context;
	uint32_t handle;
};

/* struct ibv_mr */
struct vb_mr {
	struct vb_context *context;
	struct vb_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

/*
 * struct ibv_mr_init_attr (rdma-core 59), and the bits of its comp_mask, enum
 * ibv_mr_init_attr_mask. buf is of rdma-core 64.
 */
struct vb_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct vb_dmah *dmah;
	struct vb_buf *buf;
};

enum {
	VB_REG_MR_MASK_IOVA = 1 << 0,
	VB_REG_MR_MASK_ADDR = 1 << 1,
	VB_REG_MR_MASK_FD = 1 << 2,
	VB_REG_MR_MASK_FD_OFFSET = 1 << 3,
};

/* enum mlx5dv_reg_dmabuf_access */
enum { VB_MLX5_DATA_DIRECT = 1 << 0 };

/* struct ibv_ah */
struct vb_ah {
	struct vb_context *context;
	struct vb_pd *pd;
	uint32_t handle;
};

/* enum ibv_mw_type */
enum {
	VB_MW_TYPE_1 = 1,
	VB_MW_TYPE_2 = 2,
};

/* struct ibv_mw */
struct vb_mw {
	struct vb_context *context;
	struct vb_pd *pd;
	uint32_t rkey;
	uint32_t handle;
	int type;
};

/* struct ibv_mw_bind_info */
struct vb_mw_bind_info {
	struct vb_mr *mr;
	uint64_t addr;
	uint64_t length;
	unsigned int mw_access_flags;
};

/* struct ibv_mw_bind */
struct vb_mw_bind {
	uint64_t wr_id;
	unsigned int send_flags;
	struct vb_mw_bind_info bind_info;
};

/* struct ibv_comp_channel */
struct vb_comp_channel {
	struct vb_context *context;
	int fd;
	int refcnt;
};

/* struct ibv_srq, as far as it is read */
struct vb_srq {
	struct vb_context *context;
	void *srq_context;
	struct vb_pd *pd;
	uint32_t handle;
};

/* struct ibv_srq_attr */
struct vb_srq_attr {
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t srq_limit;
};

/* struct ibv_srq_init_attr */
struct vb_srq_init_attr {
	void *srq_context;
	struct vb_srq_attr attr;
};

/* enum ibv_srq_attr_mask */
enum {
	VB_SRQ_MAX_WR = 1 << 0,
	VB_SRQ_LIMIT = 1 << 1,
};
/*
 * enum ibv_rereg_mr_flags, without the flag that changes the memory: with it
 * mlx5 turns a dma-buf MR into an MR of host memory.
 */
enum {
	VB_REREG_MR_CHANGE_PD = 1 << 1,
	VB_REREG_MR_CHANGE_ACCESS = 1 << 2,
};

#define VB_ACCESS_OPTIONAL_RANGE 0x3ff00000u

/* struct ibv_cq, as far as it is read */
struct vb_cq {
	struct vb_context *context;
	struct vb_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

/* struct ibv_qp */
struct vb_qp {
	struct vb_context *context;
	void *qp_context;
	struct vb_pd *pd;
	struct vb_cq *send_cq;
	struct vb_cq *recv_cq;
	struct vb_srq *srq;
	uint32_t handle;
	uint32_t qp_num;
	int state;
	int qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

/* struct ibv_qp_cap */
struct vb_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

/* struct ibv_qp_init_attr */
struct vb_qp_init_attr {
	void *qp_context;
	struct vb_cq *send_cq;
	struct vb_cq *recv_cq;
	struct vb_srq *srq;
	struct vb_qp_cap cap;
	int qp_type;
	int sq_sig_all;
};

/* struct ibv_global_route; union ibv_gid has the alignment of a u64 */
struct vb_global_route {
	union {
		uint8_t raw[16];
		uint64_t align[2];
	} dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

/* struct ibv_ah_attr */
struct vb_ah_attr {
	struct vb_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

/* struct ibv_qp_attr */
struct vb_qp_attr {
	int qp_state;
	int cur_qp_state;
	int path_mtu;
	int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct vb_qp_cap cap;
	struct vb_ah_attr ah_attr;
	struct vb_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

/* enum ibv_qp_attr_mask */
enum {
	VB_QP_STATE = 1 << 0,
	VB_QP_CUR_STATE = 1 << 1,
	VB_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
	VB_QP_ACCESS_FLAGS = 1 << 3,
	VB_QP_PKEY_INDEX = 1 << 4,
	VB_QP_PORT = 1 << 5,
	VB_QP_QKEY = 1 << 6,
	VB_QP_AV = 1 << 7,
	VB_QP_PATH_MTU = 1 << 8,
	VB_QP_TIMEOUT = 1 << 9,
	VB_QP_RETRY_CNT = 1 << 10,
	VB_QP_RNR_RETRY = 1 << 11,
	VB_QP_RQ_PSN = 1 << 12,
	VB_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	VB_QP_MIN_RNR_TIMER = 1 << 15,
	VB_QP_SQ_PSN = 1 << 16,
	VB_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	VB_QP_DEST_QPN = 1 << 20,
};

#include "verbs_abi_wr.h"

/* The functions in struct ibv_context_ops that verbs.h calls inline. */
typedef struct vb_mw *vb_alloc_mw_fn(struct vb_pd *, int type);
typedef int vb_bind_mw_fn(struct vb_qp *, struct vb_mw *, struct vb_mw_bind *);
typedef int vb_dealloc_mw_fn(struct vb_mw *);
typedef int vb_req_notify_cq_fn(struct vb_cq *, int solicited_only);
typedef int vb_post_srq_recv_fn(struct vb_srq *, struct vb_recv_wr *,
				struct vb_recv_wr **bad);
typedef int vb_poll_cq_fn(struct vb_cq *, int n, struct vb_wc *);
typedef int vb_post_send_fn(struct vb_qp *, struct vb_send_wr *,
			    struct vb_send_wr **bad);
typedef int vb_post_recv_fn(struct vb_qp *, struct vb_recv_wr *,
			    struct vb_recv_wr **bad);

/* struct ibv_context_ops: slots that only compatibility code uses are void. */
struct vb_context_ops {
	void *compat_query_device;
	void *compat_query_port;
	void *compat_alloc_pd;
	void *compat_dealloc_pd;
	void *compat_reg_mr;
	void *compat_rereg_mr;
	void *compat_dereg_mr;
	vb_alloc_mw_fn *alloc_mw;
	vb_bind_mw_fn *bind_mw;
	vb_dealloc_mw_fn *dealloc_mw;
	void *compat_create_cq;
	vb_poll_cq_fn *poll_cq;
	vb_req_notify_cq_fn *req_notify_cq;
	void *compat_cq_event;
	void *compat_resize_cq;
	void *compat_destroy_cq;
	void *compat_create_srq;
	void *compat_modify_srq;
	void *compat_query_srq;
	void *compat_destroy_srq;
	vb_post_srq_recv_fn *post_srq_recv;
	void *compat_create_qp;
	void *compat_query_qp;
	void *compat_modify_qp;
	void *compat_destroy_qp;
	vb_post_send_fn *post_send;
	vb_post_recv_fn *post_recv;
	void *compat_create_ah;
	void *compat_destroy_ah;
	void *compat_attach_mcast;
	void *compat_detach_mcast;
	void *compat_async_event;
};

/* struct ibv_context */
struct vb_context {
	struct vb_device *device;
	struct vb_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

#include "verbs_abi_ex.h"

#endif
